"""What a supervisor's whole word makes of a kernel's record. Pure; it must never doubt the supervisor.

Only an order that is still on its way says more than the word does: it will be obeyed.
"""

from __future__ import annotations

import math

from ..protocol.model import Phase
from .events import KernelSeen
from .record import WITH_GPUS, KernelRecord


def believed(event: KernelSeen, old: KernelRecord | None, seq: int, now: float) -> tuple[KernelRecord, Phase, tuple[str, ...]]:
    """A record of what the event says, off the GPU as yet; the phase it is to have, and the GPUs it is to take for it.

    ``old``: what was known of the kernel before, and goes on where the event doesn't contradict it.
    """
    phase, gpus, denied = event.phase, event.gpus, False
    if old is not None and event.order is not None and event.order < old.order:  # the newest order is on its way
        if old.phase is Phase.RESUMING and phase not in WITH_GPUS:
            phase, gpus = Phase.RESUMING, old.gpus
        elif old.phase is Phase.PARKING and phase is Phase.HOLDING:
            phase = Phase.PARKING
        denied = old.denied
    goes_on = old is not None and (old.phase, old.gpus) == (phase, gpus)
    waits = event.phase is Phase.WAITING
    began = now - event.phase_for
    parked = event.phase is Phase.PARKED or (bool(event.home) and event.phase in (Phase.WAITING, Phase.RESUMING))
    record = KernelRecord(
        event.kernel_id, event.user, event.count, event.node, event.name, event.display,
        seq=old.seq if old is not None else seq,
        since=old.since if goes_on else began,
        phase=Phase.PARKED if parked else Phase.COLD,
        granted=phase not in WITH_GPUS or (old is not None and old.granted and old.gpus == gpus),
        order=old.order if old is not None else 0,
        parked=parked,
        parked_bytes=event.parked_bytes,
        wanted=event.wanted or waits,
        wanted_since=old.wanted_since if old is not None and old.wanted else began if waits else now,
        executing=event.executing,
        rung=event.rung,
        rung_reason=event.rung_reason,
        got_at=old.got_at if goes_on else began,
        hold_until=now + event.hold_for if event.hold_for > 0 else -math.inf,
        silence=event.silence,
        denied=denied,
        leaving=old.leaving if old is not None else "",
        resource=event.resource,
        outside=event.outside,
    )  # fmt: skip
    if phase in WITH_GPUS and not record.busy:
        record.idle_since = now - (event.idle_for or 0.0)
    return record, phase, gpus
