"""The rules an administrator sets, and the moments that follow from them.

Pure functions over one record; this module must never look at other kernels, nor at a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..protocol.errors import SettingError
from .record import KernelRecord

NEVER = math.inf


@dataclass(frozen=True)
class Policy:
    """Durations in seconds. The defaults are "no such rule"; a site's defaults stand in ``settings.Leases``.

    ``idle_timeout``: an idle kernel's GPU is released after it (None: never; 0: at once).
    ``min_hold``: nobody else gets a GPU before its holder has had it so long. Only pressure is bound by it.
    ``max_hold``: after it a kernel gives way to waiters as soon as no cell runs, whatever min_hold and the user's own hold say,
    and also where ``reclaim`` is off (None: no limit; 0: after each cell).
    ``queue_timeout``: a cell that has waited so long ends with an error (None: never; 0: it gets a free GPU or none).
    ``reclaim``: whether idle holders give way to waiters.
    ``gpus_per_user``: GPUs that one user's kernels may hold together (None: no limit).
    ``gpus_per_kernel``: GPUs that one kernel may ask for (None: no limit).
    ``priority``: of waiters the higher is served first, whatever the fair order says.
    ``weight``: the user's share in the fair order (0: when nobody else waits).
    ``quiet``: now the idle timeout doesn't count.
    ``reserve_after``: a request for several GPUs that has waited so long gathers them one by one, and until it is served no
    smaller one overtakes it; before, smaller ones pass while it can't be served whole (None: always; 0: never).
    ``usage_half_life``: after it, GPU time that a user has had counts half in the fair order (None: it counts for ever).
    ``park_backoff``: after a kernel couldn't be parked, no new attempt for so long.
    """

    idle_timeout: float | None = None
    min_hold: float = 0.0
    max_hold: float | None = None
    queue_timeout: float | None = None
    reclaim: bool = True
    gpus_per_user: int | None = None
    gpus_per_kernel: int | None = None
    priority: int = 0
    weight: float = 1.0
    quiet: bool = False
    reserve_after: float | None = 60.0
    usage_half_life: float | None = 3600.0
    park_backoff: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if (value is None and "None" in field.type) or (field.name == "priority" and isinstance(value, int)):
                continue
            least = "more than 0" if field.name in ("usage_half_life", "park_backoff") else "0 or more"
            if not isinstance(value, (int, float)) or math.isnan(value) or value < 0 or (value == 0 and least != "0 or more"):
                raise SettingError(f"The lease policy's {field.name} is {value!r}: it must be a number, {least}.")

    def turn(self) -> float:
        """GPU-seconds that a lease is sure to cost its user, as the fair order reckons ahead."""
        return max(self.min_hold, 1.0)


def yields_at(policy: Policy, record: KernelRecord) -> float:
    """From when on an idle holder gives way to a waiter."""
    end = NEVER if policy.max_hold is None else record.got_at + policy.max_hold
    if policy.reclaim:
        end = min(end, max(record.got_at + policy.min_hold, record.hold_until))
    return NEVER if record.fixed or record.silence else max(end, record.refused_until)


def ends_at(policy: Policy, record: KernelRecord) -> tuple[float, str]:
    """``(moment, why)`` at which an idle holder's lease ends although nobody waits."""
    if record.fixed or record.silence or record.idle_since is None:
        return NEVER, ""
    if record.contested:
        return record.refused_until, "reclaimed"
    if record.release_asked:
        return record.idle_since, "asked"
    if policy.idle_timeout is None or policy.quiet:
        return NEVER, ""
    hold = record.hold_until if policy.max_hold is None else min(record.hold_until, record.got_at + policy.max_hold)
    return max(record.idle_since + policy.idle_timeout, hold, record.refused_until), "idle"


def why_it_yields(policy: Policy, record: KernelRecord, now: float) -> str:
    """Why a waiter gets a holder's GPU."""
    return "max_hold" if policy.max_hold is not None and now >= record.got_at + policy.max_hold else "reclaimed"


def gives_up_at(policy: Policy, record: KernelRecord) -> float:
    """When a waiter's wait ends with an error."""
    return NEVER if policy.queue_timeout is None else record.wanted_since + policy.queue_timeout


def gathers_at(policy: Policy, record: KernelRecord) -> float:
    """From when on GPUs are kept for a waiter that can't be served whole."""
    return NEVER if policy.reserve_after is None else record.wanted_since + policy.reserve_after
