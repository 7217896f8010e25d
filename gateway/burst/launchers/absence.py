"""Why workers of an elastic burst's least don't come, in the cluster's words, and when none will come any more.

It must never end a burst whose pods may still come: they may have a queue, or a quota of the namespace, to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...protocol import burst
from ..record import Record

if TYPE_CHECKING:
    from ...backends.kubernetes.jobs.workers import Member

FATAL = ("image", "container", "init", "exited", "oom")  # reasons for which a pod never runs, however often it is made
ABSENT_SECONDS = 3.0  # for a Job's pods to be made


class Absence:
    """``jobs``: the backend's. ``over(record, outcome, message)`` ends a burst, ``waits(record, text)`` tells what it waits for."""

    def __init__(self, jobs: Any, over: Callable[[Record, str, str], None], waits: Callable[[Record, str], None]) -> None:
        self._jobs, self._over, self._waits = jobs, over, waits
        self._since: dict[str, float] = {}

    def forget(self, record: Record) -> None:
        self._since.pop(record.id, None)

    async def look(self, record: Record, members: Iterable[Member], begun: bool) -> None:
        """While nobody works. ``begun``: some have, so that what ends one pod is no reason for all."""
        base = [member for member in members if not member.flex]
        found = [each.trouble for each in base if each.trouble is not None]
        final = next((trouble for trouble in found if trouble.final and trouble.reason in FATAL), None)
        if final is not None and not begun:
            self._over(record, burst.ERROR, final.message)
            return
        there, running = [each for each in base if not each.over], sum(bool(each.address) for each in base)
        why = next((each.trouble.message for each in there if each.trouble is not None), "")
        if len(there) >= record.least:
            self.forget(record)
        elif time.monotonic() - self._since.setdefault(record.id, time.monotonic()) >= ABSENT_SECONDS:
            ended = await self._jobs.workers.ended(record.id)
            if ended:
                self._over(record, burst.LOST, ended)
                return
            if record.queue and not there:
                self._waits(record, f"waits in the queue {record.queue}. {await self._jobs.queued(record.job)}".strip())
                return
            why = await self._jobs.refusal(record.id) or why
        if running < record.least and not (record.queue and not there):
            self._waits(record, f"{running}/{record.least} pods run. {why}".strip())
