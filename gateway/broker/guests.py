"""Who leases GPUs and is no kernel: the workers of a burst, all of its GPUs at once or none. They take their turn like everybody.

What a guest has it keeps until it ends: it can't be parked. It must never decide who gets a GPU; it speaks for guests to the book.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ..leases import events
from ..leases.book import Book
from ..leases.events import Command, Deny, Event, Grant, Place
from ..leases.record import KernelRecord
from ..protocol.model import Phase

NONE_HERE = "This machine has no GPU that can be leased: use -g 0."


@dataclass(frozen=True)
class Guest:
    """``id`` stands where a kernel's does. The callbacks come from the event loop, soon after ``Guests.ask``."""

    id: str
    user: str
    count: int
    display: str  # as people read it in another's queue line
    granted: Callable[[tuple[str, ...]], None]
    denied: Callable[[str], None]  # why, for people
    waits: Callable[[Place], None] = lambda place: None


class Guests:
    """``tell`` hands events to the ``book``, ``soon`` calls something back once that has decided. ``clock`` is the book's."""

    def __init__(
        self, book: Book, tell: Callable[[Iterable[Event]], None], soon: Callable[[Callable[[], None]], None], clock: Callable[[], float]
    ) -> None:
        self._book, self._tell, self._soon, self._clock = book, tell, soon, clock
        self._known: dict[str, Guest] = {}

    def ask(self, guest: Guest) -> None:
        """It wants its GPUs from now on."""
        self._known[guest.id] = guest
        self._tell([events.KernelSeen(guest.id, guest.user, guest.count, display=guest.display, phase=Phase.WAITING, wanted=True)])

    def hold(self, guest: Guest, gpus: tuple[str, ...]) -> events.KernelSeen:
        """It has had these since before this broker was here: what the book is to be told."""
        self._known[guest.id] = guest
        return events.KernelSeen(
            guest.id, guest.user, guest.count, display=guest.display, phase=Phase.HOLDING, gpus=gpus, executing=True
        )  # fmt: skip

    def end(self, guest_id: str) -> None:
        """It wants nothing and has nothing any more. No error where it isn't known."""
        if self._known.pop(guest_id, None) is not None:
            self._tell([events.KernelGone(guest_id)])

    def idle(self) -> int:
        """GPUs that nobody has and nobody waits for."""
        free = sum(len(self._book.devices.free(node)) for node in {gpu.node for gpu in self._book.gpus.values()})
        return max(0, free - sum(record.count for record in self._waiting()))

    def missed(self, patience: float, but: Collection[str] = ()) -> tuple[int, str]:
        """``(GPUs, whose)`` that others than these guests have waited for longer than ``patience`` seconds, and would not find free."""
        now = self._clock()
        waiting = [each for each in self._waiting() if each.kernel_id not in but and now - each.since > patience]
        free = sum(len(self._book.devices.free(node)) for node in {each.node for each in waiting})
        return max(0, sum(each.count for each in waiting) - free), ", ".join(each.label for each in waiting)

    def waiting(self, patience: float) -> list[KernelRecord]:
        """Those that have waited for a GPU for longer than ``patience`` seconds."""
        return [each for each in self._waiting() if self._clock() - each.since > patience]

    def _waiting(self) -> list[KernelRecord]:
        """Those that a free GPU would help; whoever waits for their own quota isn't among them."""
        return [each for each in self._book.queue() if each.place is None or not each.place.quota]

    def obey(self, command: Command) -> None:
        """A command of the book that is for no kernel."""
        guest = self._known.get(command.kernel_id)
        if guest is None:
            return
        if isinstance(command, Place):
            guest.waits(command)
        elif isinstance(command, Grant) and command.gpus:
            self._soon(lambda: self._granted(guest, command))
        elif isinstance(command, Grant | Deny):
            self._soon(lambda: self._denied(guest, command.message if isinstance(command, Deny) else NONE_HERE))

    def _granted(self, guest: Guest, grant: Grant) -> None:
        if self._known.get(guest.id) is guest:
            self._tell([events.Resumed(guest.id, grant.order), events.Executing(guest.id, True), events.Unwanted(guest.id)])
            guest.granted(grant.gpus)

    def _denied(self, guest: Guest, why: str) -> None:
        if self._known.get(guest.id) is guest:
            self.end(guest.id)
            guest.denied(why)
