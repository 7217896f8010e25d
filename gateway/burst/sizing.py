"""Carries out what size bursts should have: leases for the workers that are to come, orders to the agent, leases back after it has let go.

It must never give a GPU back that a worker may still be on, nor hold one that no worker comes for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from ..broker.broker import Broker
from ..broker.guests import Guest
from ..leases.events import KernelSeen
from ..protocol import burst
from ..protocol.burst import Group
from ..protocol.errors import ElasticError
from ..settings import Bursts as Settings
from .record import ENDED, RUNNING, Folder, Record
from .size import Situation, wanted

log = logging.getLogger(__name__)

GRANT_SECONDS = 0.1  # for a lease of a GPU that is idle
PATIENCE = 2.0  # seconds that somebody waits before an elastic burst gives back: idle kernels do so sooner


class Sizing:
    """``order(record, why)`` tells the agent of ``record.workers`` on ``record.leased``; it raises ``ElasticError`` where it can't."""

    def __init__(
        self, broker: Broker, settings: Settings, order: Callable[[Record, str], None], folder: Callable[[Record], Folder]
    ) -> None:
        self._broker, self._settings, self._order, self._folder = broker, settings, order, folder
        self._growing: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, float] = {}
        self._idle_since: float | None = None

    def hold(self, record: Record, base: Guest) -> list[KernelSeen]:
        """What one that an earlier gateway has started has leased."""
        held = []
        for guest_id, gpus in record.leases.items():
            guest = base if guest_id == record.id else self._worker(record, guest_id)
            held.append(self._broker.guests.hold(guest, tuple(gpus)))
        return held

    def end(self, record: Record) -> None:
        """It has ended: nothing is leased for it any more."""
        growing = self._growing.pop(record.id, None)
        if growing is not None:
            growing.cancel()
        self._changed.pop(record.id, None)
        for guest_id in {record.id, *record.leases}:
            self._broker.guests.end(guest_id)

    async def lease_more(self, record: Record, count: int) -> int:
        """GPUs for ``count`` more workers, of those that are idle just now. Returns for how many there were any."""
        first = max([int(guest_id.rpartition(".")[2]) for guest_id in record.leases if guest_id != record.id], default=0) + 1
        asked = [self._worker(record, f"{record.id}.{number}") for number in range(first, first + count)]
        for guest in asked:
            self._broker.guests.ask(guest)
        try:
            await asyncio.sleep(GRANT_SECONDS)
        finally:
            for guest in asked:
                if guest.id not in record.leases or record.state == ENDED:  # nobody else would end it then
                    self._broker.guests.end(guest.id)
        return sum(guest.id in record.leases for guest in asked)

    def look(self, records: Iterable[Record], now: float) -> None:
        """Whatever is due for those that can change."""
        elastic = [record for record in records if record.state == RUNNING and record.elastic]
        idle = self._broker.guests.idle() if elastic else 0
        self._idle_since = None if not idle else now if self._idle_since is None else self._idle_since
        for record in elastic:
            if record.id not in self._growing:
                self._look_at(record, idle, now)

    # inside

    def _look_at(self, record: Record, idle: int, now: float) -> None:
        group = self._group(record)
        if group is None:
            return
        refused = group.refused >= record.order > group.number
        if not refused and group.number != record.order:
            return  # under way
        if refused and record.workers != group.workers:  # the agent has told why; it is tried again when it would be anyway
            record.workers, record.pinned, self._changed[record.id] = group.workers, None, now
        self._give_back(record, group)
        if not group.commits:
            return
        missed, whose = self._broker.guests.missed(PATIENCE, record.leases) if record.gpus else (0, "")
        situation = Situation(
            record.least, record.most, record.workers, record.gpus, idle, missed, whose, record.pinned,
            self._changed.setdefault(record.id, now), now if self._idle_since is None else self._idle_since,
        )  # fmt: skip
        workers, why = wanted(situation, now, self._settings.grow_after)
        if workers < record.workers or (workers > record.workers and not record.gpus):
            self._change(record, workers, why, now)
        elif workers > record.workers:
            task = asyncio.get_running_loop().create_task(self._grow(record, workers, why, now))
            self._growing[record.id] = task
            task.add_done_callback(lambda done: self._growing.pop(record.id, None) if self._growing.get(record.id) is done else None)

    async def _grow(self, record: Record, workers: int, why: str, now: float) -> None:
        more = await self.lease_more(record, workers - record.workers)
        self._changed[record.id] = now
        if more and record.state == RUNNING:
            self._change(record, record.workers + more, why, now)

    def _change(self, record: Record, workers: int, why: str, now: float) -> None:
        record.workers, record.order, self._changed[record.id] = workers, record.order + 1, now
        self._folder(record).save(record)
        try:
            self._order(record, why)
        except (ElasticError, OSError) as exc:
            log.warning("burst %s: %s", record.name, exc)

    def _give_back(self, record: Record, group: Group) -> None:
        """What was leased for workers that are gone."""
        over = [guest_id for guest_id, gpus in record.leases.items() if guest_id != record.id and not set(gpus) <= set(group.gpus)]
        for guest_id in over:
            del record.leases[guest_id]
            self._broker.guests.end(guest_id)
        if over:
            self._folder(record).save(record)

    def _group(self, record: Record) -> Group | None:
        try:
            found: Any = Group.from_json(burst.read_json(self._folder(record).path / burst.GROUP))
        except (OSError, ValueError, TypeError):
            return None
        return found  # type: ignore[no-any-return]

    def _worker(self, record: Record, guest_id: str) -> Guest:
        def granted(gpus: tuple[str, ...]) -> None:
            record.leases[guest_id] = list(gpus)

        return Guest(guest_id, record.user, record.gpus, record.name, granted, denied=lambda why: None)
