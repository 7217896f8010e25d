"""What the broker looks at again and again, because nobody tells it: GPUs that come and go, orders that nothing came of, and GPU
work that belongs to no cell.

It must never act by itself: what it sees it tells the book.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

from ..backends.base import Backend, Claim
from ..leases import events
from ..leases.book import Book
from ..leases.events import Event
from ..protocol.errors import ElasticError
from ..protocol.model import Phase
from ..settings import Leases
from .link import KernelLink
from .reading import Reading

log = logging.getLogger(__name__)

INVENTORY_SECONDS = 10.0  # between two looks at the GPUs
LOST_ORDER_SECONDS = 10.0  # after which an order that nothing has come of is taken for lost
ASK_SECONDS = 5.0  # for a kernel's own supervisor to answer whether its GPU is used
USE_MARGIN = 1.0  # seconds: the driver's averages reach back so far, into a cell that has just ended


class Patrol:
    """``tell(events)`` hands events to the book; ``links`` are the lines to the kernels' supervisors."""

    def __init__(
        self, backend: Backend, leases: Leases, book: Book, readings: Mapping[str, Reading], who: str,
        tell: Callable[[Iterable[Event]], None], clock: Callable[[], float], known: Callable[[], set[str]], links: Mapping[str, KernelLink],
    ) -> None:  # fmt: skip
        self._backend, self._leases, self._book, self._readings, self._who = backend, leases, book, readings, who
        self._tell, self._clock, self._known, self._links = tell, clock, known, links
        self.foreign: Mapping[str, str] = {}  # GPUs that others lease, and who

    # GPUs

    async def inventory(self, ours: Collection[str] | None = None, known: set[str] | None = None) -> list[Event]:
        """Take what is free; what the book has to be told of it. ``ours``: GPUs on which our kernels are, None: as the book says;
        ``known``: all kernels that answer us."""
        ours = set(self._book.devices.owner) if ours is None else ours
        claim = await self._backend.claim(self._who, ours, self._known() if known is None else known)
        return self._changes(claim)

    def _changes(self, claim: Claim) -> list[Event]:
        self.foreign = claim.foreign
        told: list[Event] = []
        usable = self._book.devices.usable
        for gpu in claim.gpus:
            ours = gpu.uuid not in claim.foreign
            if gpu.uuid not in self._book.gpus or (ours and not usable(gpu.uuid)):
                told.append(events.GpuSeen(gpu))
            if not ours and (usable(gpu.uuid) or gpu.uuid not in self._book.gpus):
                told.append(
                    events.GpuLost(gpu.uuid, gpu.uuid in claim.returns)
                )  # known, so that nobody takes this for a machine without GPUs
        there = {gpu.uuid for gpu in claim.gpus}
        told += [events.GpuLost(uuid) for uuid in self._book.gpus if uuid not in there and usable(uuid)]
        return told

    def taken(self, gpus: Iterable[str], message: str) -> list[Event]:
        """A kernel that doesn't answer us is on ``gpus``, as ``message`` says; the next look tells when it has gone."""
        self.foreign = {**self.foreign, **dict.fromkeys(gpus, message)}
        return [events.GpuLost(uuid, returns=True) for uuid in gpus]

    async def watch_inventory(self, find: Callable[[], Awaitable[None]]) -> None:
        """``find`` looks for kernels that didn't answer before."""
        while True:
            await asyncio.sleep(INVENTORY_SECONDS)
            try:
                await find()
                self._tell(await self.inventory())
            except (ElasticError, OSError) as exc:
                log.warning("GPUs and kernels can't be looked at: %s", exc)
            self.find_lost_orders()

    # orders

    def find_lost_orders(self) -> None:
        """Believe the supervisor as it is where an order seems to have been lost: the book then decides anew."""
        now = self._clock()
        for kernel_id, reading in list(self._readings.items()):
            if reading.unanswered and not reading.under_way and now - reading.sent_at > LOST_ORDER_SECONDS:
                log.warning("kernel %s has not answered an order", kernel_id)
                self._tell(reading.seen(reading.state, now))

    # GPU work that belongs to no cell

    def may_be_used(self, reading: Reading) -> bool:
        """It holds real GPUs while no cell runs: only the driver knows whether it works."""
        lease = reading.state.lease
        if not self._leases.use_interval or lease.phase != Phase.HOLDING or lease.executing:
            return False
        return any((gpu := self._book.gpus.get(uuid)) is not None and not gpu.simulated for uuid in lease.gpus)

    async def in_use(self, reading: Reading) -> bool:
        """Whether it has worked lately, since its last cell."""
        idle = math.inf if reading.idle_since is None else self._clock() - reading.idle_since
        window = min(self._leases.use_interval + USE_MARGIN, idle - USE_MARGIN)
        if window <= 0:
            return False  # it can't be told from the cell yet
        if self._backend.remote:
            return await self._asked(reading.identity.kernel_id, window)
        return await self._backend.uses(reading.state.pid, reading.state.lease.gpus, window)

    async def _asked(self, kernel_id: str, window: float) -> bool:
        """The driver is on the kernel's node, and so is its supervisor; False where that can't tell, or is too old for the question."""
        link = self._links.get(kernel_id)
        try:
            answer = {} if link is None else await link.call("uses", ASK_SECONDS, seconds=window)
        except ElasticError as exc:
            log.debug("kernel %s: whether its GPU is used isn't known: %s", kernel_id, exc)
            return False
        return bool(answer.get("used"))

    def set_used(self, reading: Reading, used: bool, *first: Event) -> None:
        reading.used = used
        reading.idle_since = None if used else self._clock()
        self._tell([*first, *reading.levels()])

    async def watch_use(self) -> None:
        while True:
            await asyncio.sleep(self._leases.use_interval or INVENTORY_SECONDS)
            await asyncio.gather(*(self._look_at_use(reading) for reading in list(self._readings.values()) if self.may_be_used(reading)))

    async def _look_at_use(self, reading: Reading) -> None:
        used = await self.in_use(reading)
        if used != reading.used and self._readings.get(reading.identity.kernel_id) is reading and self.may_be_used(reading):
            self.set_used(reading, used)


def log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a part of the broker failed", exc_info=task.exception())
