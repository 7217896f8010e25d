"""What happens here, told by name to whoever wants to hear it, and written to the log with the ids of kernel and lease.

Each piece of news has an ``action`` and, where it is about a kernel, its ``kernel_id`` and ``user``; the schemas that
``jupyter_events`` knows say what else. It must never keep any, nor let a listener that fails harm whoever tells.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from ..leases.journal import Entry
from ..logs import FIELDS

log = logging.getLogger(__name__)

LEASE, KERNEL, POLICY, BURST = SUBJECTS = ("lease", "kernel", "policy", "burst")
Listener = Callable[[str, dict[str, Any]], None]


class News:
    """``generation()``: of the broker whose leases it tells of; a lease's id has it in front."""

    def __init__(self, generation: Callable[[], int]) -> None:
        self._generation = generation
        self._listeners: list[Listener] = []

    def join(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener(subject, fields)`` from now on; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def tell(self, subject: str, action: str, **fields: Any) -> None:
        """``fields`` without None; ``at`` is now."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {"action": action, "at": at, **{name: value for name, value in fields.items() if value is not None}}
        log.info("%s", sentence(subject, told), extra={FIELDS: {"subject": subject, **told}})  # by itself: some names are the log's own
        for listener in list(self._listeners):
            try:
                listener(subject, told)
            except Exception:
                log.exception("somebody who listens to news failed")

    def leases(self, entries: Iterable[Entry]) -> None:
        """The steps of leases; those of others' pods are theirs alone."""
        for entry in entries:
            if entry.user == entry.kernel_id:
                continue
            self.tell(
                LEASE, entry.action, kernel_id=entry.kernel_id, user=entry.user, kernelspec=entry.kernelspec, node=entry.node,
                flavor=entry.flavor, gpus=list(entry.gpus), lease_id=self.lease_id(entry.lease) or None, seconds=round(entry.seconds, 3),
                reason=entry.reason, message=entry.message,
            )  # fmt: skip

    def lease_id(self, number: int) -> str:
        return f"{self._generation()}-{number}" if number else ""


def sentence(subject: str, told: dict[str, Any]) -> str:
    """One line of a log for people."""
    who = f"{subject} {told['action']}" + (f", kernel {told['kernel_id']}" if told.get("kernel_id") else "")
    rest = [
        f"of {told['user']}" if told.get("user") else "",
        f"lease {told['lease_id']}" if told.get("lease_id") else "",
        " ".join(told.get("gpus", ())),
        f"after {told['seconds']:g} s" if told.get("seconds") else "",
        told.get("reason", ""),
    ]
    return ", ".join([who, *filter(None, rest)]) + (f": {told['message']}" if told.get("message") else "")
