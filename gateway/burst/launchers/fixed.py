"""Bursts in pods whose workers keep their number: what each pod runs, and what becomes of all by what ranks and cluster say.

It must never begin a cell a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ...backends.base import Backend
from ...protocol import burst
from ...protocol.errors import BadRequest
from ...protocol.peers import why_gone
from ...settings import Bursts as Settings
from ..engines import keys
from ..engines import pods as engines
from ..gathering import Gathered
from ..plan import checked_request, make_rank_plan
from ..record import ENDED, RUNNING, Record
from ..verdict import verdict
from .asking import answered
from .kinds import JOBS, kind_of
from .queueing import taken_back
from .standing import UNTOLD_SECONDS, Standing

if TYPE_CHECKING:
    from ..bursts import Bursts

KEYS = "keys.json"  # file in a burst's folder
LOOK = 0.03  # seconds between two looks at the pods while ranks ask for their plan
LAST_WORDS = 0.5  # seconds in which other ranks may say that they failed earlier
BESIDE = 3.0  # the same, where what failed doesn't lead: it may be that those that do are through
PODS_SECONDS = 3.0  # for what a pod has said to arrive after it has ended, and for a Job's pods to be made
WITH_LOG = ("exited", "oom", "init", "container")  # reasons of a pod's end that its log says more of
TAKEN_AWAY = ("disrupted", "evicted", "node_lost", "deleted")


class Fixed:
    """``soon``: lets something go on by itself."""

    def __init__(
        self, bursts: Bursts, backend: Backend, settings: Settings, standing: Standing, soon: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._bursts, self._jobs, self._settings, self._standing, self._soon = bursts, backend.jobs, settings, standing, soon
        self._gathered: dict[str, Gathered] = {}
        self._here: dict[str, dict[int, str]] = {}  # by burst and rank: the address of the pod that asks for its plan, or has it
        self._given: dict[str, dict[int, str]] = {}  # by burst and rank: the address of the pod that has its plan

    def begun(self, record: Record) -> bool:
        """A rank may have begun its cell."""
        return bool(self._given.get(record.id) or self._gathered_of(record).upto)

    def ended(self, record: Record) -> None:
        for known in (self._gathered, self._here, self._given):
            known.pop(record.id, None)

    # behind the door

    async def plan(self, record: Record, rank: int, address: str, pod: str) -> dict[str, Any]:
        """What a rank says of itself is known a second before the cluster says it."""
        here = self._here.setdefault(record.id, {})
        here[rank] = address
        try:
            count = engines.shape(record).pods
            if not 0 <= rank < count:
                raise BadRequest(f"There is no rank {rank}: there are {count}.")
            return await answered(record, lambda: self._plan(record, rank, address, count), LOOK)
        finally:
            if here.get(rank) == address and rank not in self._given.get(record.id, {}):
                del here[rank]

    def _plan(self, record: Record, rank: int, address: str, count: int) -> dict[str, Any]:
        """{} while others have no pod."""
        addresses = {**self._jobs.addresses(record.id), **self._here.get(record.id, {})}
        if len(addresses) < count:
            return {}
        if self._given.setdefault(record.id, {}).setdefault(rank, address) != address:
            why = "and a cell isn't begun a second time unasked. Run it again."
            self._standing.over(record, burst.LOST, f"The cluster has taken {engines.called(record, rank)}'s pod away, {why}")
            return {}
        request = checked_request(self._bursts.folder_of(record).request())
        places = [addresses[each] for each in range(count)]
        processes = engines.processes(record, request, rank, places)
        files = {**engines.files(record, places, request), **self._keys(record)}
        return {"plan": make_rank_plan(record, request, processes, self._settings, count, files).to_json()}

    def words(self, record: Record, rank: int, since: int, data: bytes) -> dict[str, Any]:
        upto = self._gathered_of(record).take(rank, since, data)
        if data:
            self._decide(record)
        return {"next": upto, "over": record.state == ENDED}

    # what becomes of one

    async def look(self, record: Record) -> None:
        """What the cluster says of its pods."""
        pods = self._jobs.pods(record.id, partial(engines.called, record))
        gathered, lasts = self._gathered_of(record), self._standing.lasts
        count, begun = engines.shape(record).pods, self.begun(record)
        few = lasts(record, "few pods", pods.count < count, PODS_SECONDS)
        if few and not pods.count:
            jobs = kind_of(record) == JOBS  # of others it isn't known
            gone = "Its pods were deleted in the cluster." if begun else await self._jobs.workers.ended(record.id) if jobs else ""
            if gone:
                await self._taken(record, gone)
                return
        if record.queue and not pods.count:
            self._standing.waits(record, f"waits in the queue {record.queue}. {await self._jobs.queued(record.job)}".strip())
            return
        for rank, trouble in sorted(pods.trouble.items()):
            told = rank in gathered.ended or rank in gathered.failing
            again = trouble.reason in TAKEN_AWAY and not begun
            if lasts(record, f"rank {rank}", trouble.final and not told and not again, PODS_SECONDS):
                words = await self._jobs.log(record.id, rank) if trouble.reason in WITH_LOG else ""
                self._standing.over(record, burst.ERROR, trouble.message + (f"\nIts last words:\n{words}" if words else ""))
                return
        if len(pods.addresses) < count and not begun:
            refused = await self._jobs.refusal(record.id, kind_of(record)) if few else ""
            why = refused or next((each.message for each in pods.trouble.values()), "")
            if lasts(record, "no reason", not why, UNTOLD_SECONDS):
                why = await self._jobs.hindrance(record.id)
            self._standing.waits(record, f"{len(pods.addresses)}/{count} pods run. {why}".strip())

    def _decide(self, record: Record) -> None:
        """By what its ranks have said."""
        gathered, leads = self._gathered_of(record), engines.shape(record).leads
        bad = gathered.failing | {pod for pod, end in gathered.ended.items() if end["outcome"] != burst.OK}
        if leads <= gathered.ended.keys():
            self._conclude(record)
        elif bad and record.id not in self._standing.cancelled:
            asyncio.get_running_loop().call_later(LAST_WORDS if bad & leads else BESIDE, self._conclude, record)

    def _conclude(self, record: Record) -> None:
        if record.state != RUNNING:
            return
        if record.id in self._standing.cancelled:
            self._standing.over(record, burst.CANCELLED, "It was cancelled.")
            return
        outcome, message, failure = verdict(self._gathered_of(record), engines.shape(record).leads, partial(engines.called, record))
        if outcome == burst.LOST:  # its agent knows only that it was told to end
            troubles = self._jobs.pods(record.id, partial(engines.called, record)).trouble.values()
            message = next((each.message for each in troubles if each.final), message)
            if record.queue:
                self._soon(self._taken(record, message))
                return
        if failure is not None:
            done = [pod for pod, end in sorted(self._gathered_of(record).ended.items()) if end["outcome"] == burst.OK]
            why = why_gone(failure, [engines.called(record, pod).capitalize() for pod in done])
            notes = [{"t": burst.NOTE, "at": time.time(), "text": why}] if why else []
            self._bursts.folder_of(record).note(*notes, failure)
        self._standing.over(record, outcome, message)

    async def _taken(self, record: Record, message: str) -> None:
        """Its pods are gone; it may be that its queue wanted them back."""
        taken = await taken_back(self._jobs, [record.job]) if record.queue else ""
        self._standing.over(record, burst.LOST, taken or message)

    # inside

    def _gathered_of(self, record: Record) -> Gathered:
        if record.id not in self._gathered:
            self._gathered[record.id] = Gathered.again(self._bursts.folder_of(record), *engines.shape(record)[::2])
        return self._gathered[record.id]

    def _keys(self, record: Record) -> dict[str, str]:
        """By which members of this burst know one another, as files; made once."""
        file = self._bursts.folder_of(record).path / KEYS
        with contextlib.suppress(FileNotFoundError):
            return {name: str(text) for name, text in burst.read_json(file).items()}
        made = keys.make(record.engine, record.name)
        burst.write_json(file, made)
        return made
