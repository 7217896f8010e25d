"""What becomes of leases, one entry for each step: granted, attached, released, reclaimed, kept, refused. For whoever tells people of it.

It sees what has changed between two looks at a kernel, so a lease that goes on under a new broker is not granted anew. Pure; it must
never decide anything, nor keep an entry that has been taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.errors import ElasticError
from .devices import Devices
from .record import KernelRecord

RECLAIMED = "reclaimed"  # why a kernel is parked, and the name of the step too
ENDED, RESTARTED, FAILED, LOST = "ended", "restarted", "failed", "lost"  # why GPUs are free though nobody was told to park


@dataclass(frozen=True, slots=True)
class Entry:
    """``lease``: number of the lease, counted by this broker, 0 where there is none. ``seconds``: waited until granted or refused, moved
    until attached, held until released or reclaimed. ``reason``: a short code; ``message``: for people."""

    action: str
    kernel_id: str
    user: str
    kernelspec: str
    node: str
    flavor: str
    gpus: tuple[str, ...]
    lease: int
    seconds: float
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class _Open:
    number: int
    gpus: tuple[str, ...]
    flavor: str
    begin: float


class Journal:
    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._open: dict[str, _Open] = {}
        self._count = 0
        self._entries: list[Entry] = []

    def lease(self, kernel_id: str) -> int:
        """The number of the lease that a kernel has, 0: none."""
        found = self._open.get(kernel_id)
        return 0 if found is None else found.number

    def note(self, record: KernelRecord, now: float) -> None:
        """Its GPUs may have changed."""
        old = self._open.get(record.kernel_id)
        if old is not None and old.gpus != record.gpus:
            self._ends(record, now, record.leaving or LOST)
            old = None
        if old is None and record.gpus:
            self._count += 1
            self._open[record.kernel_id] = _Open(self._count, record.gpus, self._devices.flavor(record), min(now, record.since))
            if record.granted:  # else it has had them since before this broker was here
                self._add("granted", record, now - record.wanted_since)

    def gone(self, record: KernelRecord, now: float) -> None:
        """The kernel has ended."""
        if record.kernel_id in self._open:
            self._ends(record, now, ENDED)

    def attached(self, record: KernelRecord, now: float) -> None:
        """What it was granted is usable."""
        self._add("attached", record, now - record.since)

    def kept(self, record: KernelRecord, reason: str) -> None:
        """It was told to give its GPUs up and can't, or won't yet."""
        self._add("kept", record, 0.0, reason)

    def refused(self, record: KernelRecord, why: ElasticError, now: float) -> None:
        """Its cells wait in vain."""
        self._add("refused", record, now - record.wanted_since, why.reason, str(why))

    def take(self) -> list[Entry]:
        """What has happened since the last time, once."""
        entries, self._entries = self._entries, []
        return entries

    def _ends(self, record: KernelRecord, now: float, why: str) -> None:
        held = now - self._open[record.kernel_id].begin
        self._add(RECLAIMED if why == RECLAIMED else "released", record, held, why)
        del self._open[record.kernel_id]

    def _add(self, action: str, record: KernelRecord, seconds: float, reason: str = "", message: str = "") -> None:
        lease = self._open.get(record.kernel_id) or _Open(0, (), self._devices.flavor(record), 0.0)
        self._entries.append(
            Entry(
                action, record.kernel_id, record.user, record.name, record.node, lease.flavor, lease.gpus, lease.number, max(0.0, seconds),
                reason, message,
            )
        )  # fmt: skip
