"""What people are told of a queue: why workers beyond the least don't come from it yet, and why it has taken pods back.

Kueue's own words are shown as they are, each once in a burst: it says them again with every look. It must never decide what becomes of a
worker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..record import Record
from .absence import ABSENT_SECONDS
from .standing import Standing

LATER = "workers beyond the least in the queue"  # what may last


class Queueing:
    """``jobs``: the backend's. ``tell``: a line for the burst's cell."""

    def __init__(self, jobs: Any, standing: Standing, tell: Callable[[Record, str], None]) -> None:
        self._jobs, self._standing, self._tell = jobs, standing, tell
        self._said: dict[str, set[str]] = {}

    async def waits(self, record: Record, jobs: Collection[str]) -> None:
        """``jobs``: uids of those of its workers more that have no pod."""
        if self._standing.lasts(record, LATER, bool(jobs), ABSENT_SECONDS):
            who = "A worker more waits" if len(jobs) == 1 else f"{len(jobs)} workers more wait"
            self._once(record, f"{who} in the queue {record.queue}. {await self._jobs.queued(next(iter(jobs)))}".strip())

    async def took(self, record: Record, job: str) -> None:
        """A worker more, whose Job has that uid, is told to end."""
        if words := await self._jobs.taken(job):
            self._tell(record, f"Kueue takes a worker back: {words}")

    def forget(self, record: Record) -> None:
        self._said.pop(record.id, None)

    def _once(self, record: Record, text: str) -> None:
        said = self._said.setdefault(record.id, set())
        if text not in said:
            said.add(text)
            self._tell(record, text)


async def taken_back(jobs: Any, uids: Iterable[str]) -> str:
    """What a burst ends with, if its queue has taken pods of one of those Jobs of its; "" where it hasn't."""
    for uid in uids:
        if words := await jobs.taken(uid):
            return f"Kueue took its pods away: {words}. Run the cell again to queue it anew."
    return ""
