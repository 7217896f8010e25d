"""Which waits can't end with a GPU, and what their notebooks are told. Texts and conditions; it must never change a record."""

from __future__ import annotations

from ..protocol.errors import ElasticError, ImpossibleRequest, LeaseError, QueueTimeout
from .devices import Devices
from .policy import Policy
from .record import KernelRecord


def hopeless(record: KernelRecord, devices: Devices, policy: Policy) -> ElasticError | None:
    """Why no GPU that could ever come free would serve this waiter; None: it may wait."""
    limit = policy.gpus_per_user
    if limit is not None and record.count > limit:
        return ImpossibleRequest(
            f"This kernel asks for {_gpus(record.count)}, and each user may hold {limit} at a time here. "
            "Use a kernel that asks for fewer, or ask the administrator for more (Leases.gpus_per_user)."
        )
    most = max(map(len, devices.pools(record)), default=0)
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
        f"No GPU came free in {policy.queue_timeout:g} s, the longest wait allowed here (Leases.queue_timeout)"
        f"{f'; held by {held}' if held else ''}. Run the cell again to wait again."
    )


def holders(record: KernelRecord, devices: Devices) -> tuple[str, ...]:
    """Who has what this waiter could use, as people read it."""
    wanted = frozenset().union(*devices.pools(record))
    return tuple(dict.fromkeys(_called(other) for other in devices.holders(record.node) if not wanted.isdisjoint(other.gpus)))


def _called(holder: KernelRecord) -> str:
    return f"{holder.label}, not answering ({holder.silence})" if holder.silence else holder.label


def _gpus(count: int) -> str:
    return f"{count} GPU" + "s" * (count != 1)
