"""Why workers of an elastic burst's least don't come, in the cluster's words, and when none will come any more.

It must never end a burst whose pods may still come: they may have a queue, or a quota of the namespace, to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...protocol import burst
from ..record import Record
from .standing import UNTOLD_SECONDS, Standing

if TYPE_CHECKING:
    from ...backends.kubernetes.jobs.workers import Member

FATAL = ("image", "container", "init", "exited", "oom")  # reasons for which a pod never runs, however often it is made
FEW = "few of the least"  # what may last
ABSENT_SECONDS = 3.0  # for a Job's pods to be made


class Absence:
    """``jobs``: the backend's."""

    def __init__(self, jobs: Any, standing: Standing) -> None:
        self._jobs, self._standing = jobs, standing

    def forget(self, record: Record) -> None:
        self._standing.lasts(record, FEW, False, ABSENT_SECONDS)

    async def look(self, record: Record, members: Iterable[Member], begun: bool) -> bool:
        """While nobody works. ``begun``: some have, so that what ends one pod is no reason for all. Returns whether the least wait in a
        queue."""
        base = [member for member in members if not member.flex]
        found = [each.trouble for each in base if each.trouble is not None]
        final = next((trouble for trouble in found if trouble.final and trouble.reason in FATAL), None)
        if final is not None and not begun:
            self._standing.over(record, burst.ERROR, final.message)
            return False
        there, running = [each for each in base if not each.over], sum(bool(each.address) for each in base)
        why = next((each.trouble.message for each in there if each.trouble is not None), "")
        if len(there) >= record.least:
            self.forget(record)
        elif self._standing.lasts(record, FEW, True, ABSENT_SECONDS):
            ended = await self._jobs.workers.ended(record.id)
            if ended:
                self._standing.over(record, burst.LOST, ended)
                return False
            if record.queue and not there:
                self._standing.waits(record, f"waits in the queue {record.queue}. {await self._jobs.queued(record.job)}".strip())
                return True
            why = await self._jobs.refusal(record.id) or why
        if running < record.least and self._standing.lasts(record, "no reason", not why, UNTOLD_SECONDS):
            why = await self._jobs.hindrance(record.id)
        if running < record.least and not (record.queue and not there):
            self._standing.waits(record, f"{running}/{record.least} pods run. {why}".strip())
        return False
