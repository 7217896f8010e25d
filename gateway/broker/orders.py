"""What the book commands becomes orders to supervisors, each with the broker's generation and a number of its own.

It must never decide anything, nor give an order that it has not noted in the kernel's reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from ..backends.base import Backend, GpusTaken
from ..leases import events
from ..leases.book import Book
from ..leases.events import Command, Deny, Event, Grant, Park, Place
from ..leases.refusal import NO_GPU
from ..protocol.errors import ImpossibleRequest
from ..protocol.model import GPU_IN_USE
from . import accounts
from .foreigners import Foreigners
from .guests import Guests
from .lines import Lines
from .link import KernelLink
from .patrol import Patrol
from .reading import Reading


class Orders:
    """``tell(events)`` hands events to the book, ``do(work)`` has something done meanwhile. ``costs`` of pretending a GPU; ``visible`` as
    in ``ElasticGateway.visible_devices``."""

    def __init__(
        self, backend: Backend, book: Book, lines: Lines, patrol: Patrol, guests: Guests, costs: dict[str, float], visible: str,
        foreigners: Foreigners, clock: Callable[[], float], tell: Callable[[Iterable[Event]], None],
        do: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:  # fmt: skip
        self._backend, self._book, self._lines, self._patrol, self._guests = backend, book, lines, patrol, guests
        self._costs, self._visible, self._foreigners, self._clock, self._tell, self._do = costs, visible, foreigners, clock, tell, do
        self._epoch = 0

    def carry_out(self, commands: Iterable[Command]) -> None:
        """Those of the book, in its order."""
        for command in commands:
            link, reading = self._lines.links.get(command.kernel_id), self._lines.readings.get(command.kernel_id)
            if link is None or reading is None:
                self._guests.obey(command)
                continue
            if isinstance(command, Place):
                holders = command.holders or tuple(dict.fromkeys(self._patrol.foreign.values()))
                told = {"position": command.position, "of": command.of, "expected": command.expected, "quota": command.quota}
                self._order(link, "queue", holders=holders, **told)
                continue
            reading.sent(command, self._clock())
            if isinstance(command, Grant) and command.gpus and not self._backend.direct:
                reading.sent_at = math.inf
                self._do(self._acquire(link, reading, command))
            elif isinstance(command, Grant) and self._backend.remote and self._book.kernels[command.kernel_id].count:
                self._order(link, "deny", reason=ImpossibleRequest.reason, message=NO_GPU.format(node=reading.identity.node))
            elif isinstance(command, Grant):
                self._order(link, "grant", gpus=command.gpus, **self._about(command.gpus))
            elif isinstance(command, Deny):
                self._order(link, "deny", reason=command.reason, message=self._why(command))
            elif self._patrol.may_be_used(reading):
                self._do(self._park_unless_used(link, reading, command))
            else:
                self._order(link, "park", why=command.why)

    def _order(self, link: KernelLink, do: str, **fields: Any) -> None:
        self._epoch += 1
        if do != "queue":
            self._lines.readings[link.kernel_id].epoch = self._epoch
        link.order(do, (self._lines.generation, self._epoch), **fields)

    def _about(self, leased: tuple[str, ...]) -> dict[str, Any]:
        """What a supervisor is told with these: CUDA_VISIBLE_DEVICES; what they cost to pretend, None where they are real; where they
        are locked. Whoever started the kernel may know nothing of our configuration."""
        others = self._book.gpus if self._visible == "all" else ()
        simulated = any(self._book.gpus[uuid].simulated for uuid in leased if uuid in self._book.gpus)
        return {
            "visible": [*leased, *(uuid for uuid in others if uuid not in leased)],
            "simulated": self._costs if simulated else None,
            "lock_dir": self._backend.lock_dir,
        }

    def _why(self, deny: Deny) -> str:
        if deny.reason == ImpossibleRequest.reason and self._patrol.foreign:
            theirs = ", ".join(f"{uuid} by {who}" for uuid, who in self._patrol.foreign.items())
            return f"{deny.message} Held by others: {theirs}."
        return deny.message

    async def _acquire(self, link: KernelLink, reading: Reading, grant: Grant) -> None:
        """Where GPUs are accounted for elsewhere, the kernel is told once they are its own there, too."""
        try:
            devices = await self._backend.acquire(link.supervisor, grant.gpus)
        except GpusTaken as exc:
            if reading.withdraw(grant) and self._lines.links.get(link.kernel_id) is link:
                refused = events.ResumeFailed(link.kernel_id, grant.order, GPU_IN_USE)
                self._tell([*self._patrol.taken(exc.gpus, str(exc)), refused, *reading.levels()])
            return
        if reading.order is grant and reading.unanswered and self._lines.links.get(link.kernel_id) is link:
            reading.sent_at = self._clock()
            self._order(link, "grant", gpus=grant.gpus, **self._about(grant.gpus), devices=devices)
        else:  # it has ended, or restarted, meanwhile
            self.settle()

    def settle(self) -> None:
        """What everybody has now, where it is accounted for elsewhere."""
        if self._backend.direct:  # nothing is accounted for elsewhere, and this is asked with each word of each kernel
            return
        held = accounts.leases(self._book, self._foreigners.names)
        self._backend.settle(held, self._lines.obeying(), accounts.waiting(self._book), accounts.homes(self._book))

    async def _park_unless_used(self, link: KernelLink, reading: Reading, park: Park) -> None:
        """A training thread goes on after its cell: that counts as executing."""
        if await self._patrol.in_use(reading):
            if reading.withdraw(park):
                self._patrol.set_used(reading, True, events.ParkRefused(link.kernel_id, park.order, "executing"))
        elif reading.order is park and self._lines.links.get(link.kernel_id) is link:
            self._order(link, "park", why=park.why)
