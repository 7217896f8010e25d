"""Which waits can't end with a GPU, and what their notebooks are told. Texts and conditions; it must never change a record."""

from __future__ import annotations

from ..protocol.errors import ElasticError, ImpossibleRequest, LeaseError, QueueTimeout
from .devices import Devices
from .levels import FLAVOR, KERNELSPEC, SITE, Levels, Said
from .policy import NEVER, Policy
from .quota import Room
from .record import KernelRecord

NO_GPU = (
    "This kernel's node ({node}) has no GPU that can be leased. Ask the administrator to send kernels of this profile to nodes that have "
    "(node_selector), or use another kernel."
)


def hopeless(record: KernelRecord, devices: Devices, levels: Levels) -> ElasticError | None:
    """Why no GPU that could ever come free would serve this waiter; None: it may wait."""
    if record.outside:
        return None
    pools = devices.pools(record)
    flavors = dict.fromkeys(map(devices.flavor_of, pools)) or {devices.flavor(record): None}
    limits = {flavor: levels.forbids(record.count, record.user, record.name, flavor) for flavor in flavors}
    if None not in limits.values():
        setting, said = next(limit for limit in limits.values() if limit)
        who = "one kernel may have" if setting == "gpus_per_kernel" else "one user may hold"
        kind = f" {said.name}" if said.level == FLAVOR else ""
        return ImpossibleRequest(
            f"This kernel asks for {_gpus(record.count)}, and {who} {said.value}{kind} at a time here. "
            f"Use a kernel that asks for fewer, or ask the administrator for more ({_setting(setting, said)})."
        )
    most = max((len(pool) for pool in pools if limits[devices.flavor_of(pool)] is None), default=0)
    if record.count <= most:
        return None
    if record.home:
        why = devices.rung(record)[1]
        return ImpossibleRequest(
            f"This kernel's GPU state was parked from {', '.join(record.home)}, which can't be leased now (gone, or leased by another "
            f"broker), and it can't be resumed elsewhere{f' ({why})' if why else ''}. "
            "Run the cell again once the GPU is back, or restart the kernel."
        )
    return ImpossibleRequest(
        f"This kernel asks for {_gpus(record.count)} of one kind, and its node ({record.node}) has {most} that can be leased. "
        + ("Use a kernel that asks for fewer." if most else "Ask the administrator for one, or use the gateway that leases them.")
    )


def over(room: Room) -> str:
    """What keeps a waiter whose user holds too much, for the line in its notebook."""
    quota, held = room.quota, room.held
    kind = f" of {quota.level} {quota.name}" if quota.level in (FLAVOR, KERNELSPEC) else ""
    then = "one of yours has to become idle first" if room.ready == NEVER else "one of yours gives its own up first"
    return f"you hold {_gpus(held)}{kind} and may hold {quota.value} ({_setting('gpus_per_user', quota)}), so {then}"


def drained(record: KernelRecord) -> ElasticError:
    """An administrator takes the waiter's node down."""
    return LeaseError(
        f"This kernel's node ({record.node}) is being drained for maintenance, so no GPU is leased there. Its variables stay: "
        "run the cell again when the administrator has ended the draining (`jupyter elastic-gateway drain --off`).",
        reason="drained",
    )


def too_long(record: KernelRecord, devices: Devices, policy: Policy) -> ElasticError:
    """The wait has lasted as long as the site allows."""
    held = ", ".join(holders(record, devices))
    return QueueTimeout(
        f"No GPU came free in {policy.queue_timeout:g} s, the longest wait allowed here (queue_timeout)"
        f"{f'; held by {held}' if held else ''}. Run the cell again to wait again."
    )


def holders(record: KernelRecord, devices: Devices) -> tuple[str, ...]:
    """Who has what this waiter could use, as people read it."""
    wanted = frozenset().union(*devices.pools(record))
    return tuple(dict.fromkeys(_called(other) for other in devices.holders(record.node) if not wanted.isdisjoint(other.gpus)))


def _called(holder: KernelRecord) -> str:
    return f"{holder.label}, not answering ({holder.silence})" if holder.silence else holder.label


def _setting(name: str, said: Said) -> str:
    return f"Leases.{name}" if said.level == SITE else f"{name} of {said.whose}"


def _gpus(count: int) -> str:
    return f"{count} GPU" + "s" * (count != 1)
