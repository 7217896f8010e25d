"""The lines to the kernels that the broker leases to: what their supervisors say becomes events of the book.

It must never give an order, nor keep a truth that a supervisor doesn't have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from ..backends.base import Supervisor
from ..leases import events
from ..leases.book import Book
from ..leases.events import Event, Grant
from ..protocol.errors import StaleOrderError
from ..protocol.model import GPU_IN_USE, KernelState, Rung
from .link import KernelLink
from .reading import CANT_PARK, Identity, Reading

log = logging.getLogger(__name__)


class Lines:
    """``tell(events)`` hands events to the book, ``do(work)`` has something done meanwhile. ``asked`` is told of each question of a kernel,
    ``left`` of each kernel that is about to be ended; ``taken(gpus, message)``: what the book is told of GPUs that others are on."""

    def __init__(
        self, book: Book, clock: Callable[[], float], tell: Callable[[Iterable[Event]], None],
        do: Callable[[Coroutine[Any, Any, None]], None], asked: Callable[[KernelLink, int, dict[str, Any]], None],
        left: Callable[[str], None], taken: Callable[[Iterable[str], str], list[Event]],
    ) -> None:  # fmt: skip
        self._book, self._clock, self._tell, self._do = book, clock, tell, do
        self._asked, self._left, self._taken = asked, left, taken
        self.generation = 0
        self.links: dict[str, KernelLink] = {}
        self.readings: dict[str, Reading] = {}
        self.dials: dict[str, int] = {}
        self.leaving: set[str] = set()

    @property
    def known(self) -> set[str]:
        """Those that are spoken with, and those that are being ended."""
        return {*self.links, *self.leaving}

    def obeying(self) -> set[str]:
        """The known kernels without those that obey a newer broker: what they have is not ours to give back."""
        return {*self.readings, *self.leaving}

    def leave(self, kernel_id: str) -> None:
        """Hang up on a kernel that is about to be ended: it waits for nothing any more, and what it holds is free once it is removed."""
        self.leaving.add(kernel_id)
        self._left(kernel_id)
        link = self.links.pop(kernel_id, None)
        if link is not None:
            link.close()
        self.readings.pop(kernel_id, None)
        record = self._book.kernels.get(kernel_id)
        if record is not None and not record.gpus:
            self._tell([events.KernelGone(kernel_id)])

    def remove(self, kernel_id: str) -> None:
        """Forget a kernel, which has ended; its GPUs are free again. No error where it is not known."""
        self.leave(kernel_id)
        self.leaving.discard(kernel_id)
        if kernel_id in self._book.kernels:
            self._tell([events.KernelGone(kernel_id)])

    # what supervisors say

    def welcome(self, supervisor: Supervisor, link: KernelLink) -> list[Event]:
        kernel_id = supervisor.kernel_id
        who = Identity(kernel_id, supervisor.user, supervisor.node, supervisor.name, supervisor.display, supervisor.resource)
        reading = Reading(who, self.generation)
        self.leaving.discard(kernel_id)
        self.links[kernel_id], self.readings[kernel_id], self.dials[kernel_id] = link, reading, link.dials
        link.on_ask = self._asked
        link.on_state(self._heard)
        link.on_lost(self._lost)
        link.on_silent(self._silent)
        link.on_refused(self._refused)
        return reading.seen(link.state, self._clock())

    def _heard(self, link: KernelLink, state: KernelState) -> None:
        reading = self.readings.get(link.kernel_id)
        if reading is None or self.links.get(link.kernel_id) is not link:
            return
        if state.lease.order[0] > self.generation:  # it needn't refuse us first: what it does now is that one's, and its slot
            self._obeys_another(link)
            return
        now = self._clock()
        if link.dials != self.dials[link.kernel_id]:
            self.dials[link.kernel_id] = link.dials
            told = reading.seen(state, now)
        else:
            told = reading.next(state, now)
        if state.lease.answer == CANT_PARK and any(isinstance(event, events.ParkRefused) for event in told):
            told = [*self._exclusive(state), *told]
        if any(isinstance(event, events.ResumeFailed) and event.reason == GPU_IN_USE for event in told):
            told = [*self._in_use(reading, state), *told]
        self._tell(told)
        record = self._book.kernels.get(link.kernel_id)
        if record is not None and reading.contradicts(record):
            log.warning("kernel %s: the book said %s, its supervisor %s", link.kernel_id, record.phase, state.lease.phase)
            self._tell(reading.seen(state, now))

    def _silent(self, link: KernelLink, why: str) -> None:
        reading = self.readings.get(link.kernel_id)
        if reading is not None and self.links.get(link.kernel_id) is link:
            reading.silence = why
            self._tell([events.Silence(link.kernel_id, why)])

    def _lost(self, link: KernelLink, reason: str) -> None:
        if self.links.get(link.kernel_id) is link:
            log.info("kernel %s: %s", link.kernel_id, reason)
            self.leave(link.kernel_id)
            self._do(self._clear(link))

    async def _clear(self, link: KernelLink) -> None:
        """Its GPU is somebody else's once nothing that its kernel has started is on it."""
        try:
            await link.supervisor.clear()
        finally:
            if link.kernel_id in self.leaving:  # else it has been started again
                self.remove(link.kernel_id)

    def _refused(self, link: KernelLink, said: dict[str, Any]) -> None:
        if said["reason"] == StaleOrderError.reason and self.links.get(link.kernel_id) is link:
            self._obeys_another(link)

    def _obeys_another(self, link: KernelLink) -> None:
        if self.readings.pop(link.kernel_id, None) is not None:
            log.warning("kernel %s obeys a newer broker now", link.kernel_id)
            self._tell([events.KernelGone(link.kernel_id)])

    def _exclusive(self, state: KernelState) -> list[Event]:
        gpus = (self._book.gpus.get(uuid) for uuid in state.lease.gpus)
        return [events.GpuSeen(replace(gpu, rung=Rung.EXCLUSIVE, reason=state.lease.answer_message)) for gpu in gpus if gpu is not None]

    def _in_use(self, reading: Reading, state: KernelState) -> list[Event]:
        """A kernel that we can't see is on the GPU that we granted."""
        log.warning("kernel %s could not have its GPU: %s", state.kernel_id, state.lease.answer_message)
        return self._taken(reading.order.gpus if isinstance(reading.order, Grant) else (), state.lease.answer_message)
