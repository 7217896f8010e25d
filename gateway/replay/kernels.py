"""Kernels in virtual time, each with the user of its session: what a supervisor does on an order, and what it tells the book.

``ElasticKernel`` holds GPUs while its cells need them. ``KeepingKernel`` is the kernel of other sites: it needs its GPUs to live.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ..leases.events import Denied, Deny, Executing, Grant, KernelGone, KernelSeen, Park, Parked, Resumed, Unwanted, Wanted
from ..protocol.model import Phase, Rung
from .trace import Cell, Session

if TYPE_CHECKING:
    from .play import World


class Kernel(ABC):
    """``world`` calls ``begin`` at the session's start, then whatever the book orders; a user sends one cell at a time."""

    def __init__(self, kernel_id: str, session: Session, world: World) -> None:
        self.id, self.session, self.world = kernel_id, session, world
        self.gpus = session.gpus
        self.cell: Cell | None = None  # the one that waits or runs
        self.running = False
        self._next = iter(session.cells)
        self._sent_at = self._got_at = 0.0

    def begin(self) -> None:
        self.world.kernels[self.id] = self
        self.born()
        self._proceed()

    def _proceed(self) -> None:
        """The user reads on, or closes the session."""
        self.cell, self.running = None, False
        cell = next(self._next, None)
        if cell is None:
            self.world.after(self.session.tail, self.end)
        else:
            self.world.after(cell.gap, lambda: self._send(cell))

    def _send(self, cell: Cell) -> None:
        self.cell, self._sent_at = cell, self.world.now
        self.sent(cell)

    def run(self) -> None:
        """The cell that was sent goes through."""
        self.running = True
        self.world.tally.started(self.session.user, self.cell, self.world.now - self._sent_at)
        self.world.after(self.cell.duration, self._done)

    def _done(self) -> None:
        ended = self.cell
        self._proceed()
        self.ran(ended)

    def fail(self) -> None:
        """The cell that was sent ends with an error: its wait was denied."""
        self.world.tally.denied(self.session.user, self.cell, self.world.now - self._sent_at)
        self._proceed()

    def got(self) -> None:
        self._got_at = self.world.now

    def gave(self) -> None:
        self.world.tally.held += self.gpus * (self.world.now - self._got_at)

    @abstractmethod
    def born(self) -> None:
        """The session begins."""

    @abstractmethod
    def sent(self, cell: Cell) -> None:
        """The user has sent a cell: ``run`` it now or later."""

    @abstractmethod
    def ran(self, cell: Cell) -> None:
        """That cell has ended."""

    @abstractmethod
    def end(self) -> None:
        """The user has closed the session."""

    @abstractmethod
    def granted(self, order: Grant) -> None: ...

    @abstractmethod
    def park(self, order: Park) -> None: ...

    @abstractmethod
    def denied(self, order: Deny) -> None: ...


class ElasticKernel(Kernel):
    """A cell that needs no GPU passes in any phase, as the gate lets it."""

    phase = Phase.COLD
    memory = 0  # bytes of its state

    def born(self) -> None:
        self.node = self.world.place(self.session)
        self._seen(Phase.COLD)

    def sent(self, cell: Cell) -> None:
        if not cell.gpus:
            self.run()
        elif self.phase is Phase.HOLDING:
            self.run()
            self.world.tell(Executing(self.id, True))
        else:
            self.world.tell(Wanted(self.id))

    def ran(self, cell: Cell) -> None:
        if cell.gpus:
            self.memory = cell.memory
            self.world.tell(Executing(self.id, False))

    def granted(self, order: Grant) -> None:
        self.got()
        cost = self.world.rules.costs.of(self.memory) if self.phase is Phase.PARKED else 0.0
        self.phase = Phase.RESUMING
        self.world.tally.attached(cost)
        self.world.after(cost, lambda: self._resumed(order))

    def _resumed(self, order: Grant) -> None:
        self.phase = Phase.HOLDING
        self.run()
        self.world.tell(Resumed(self.id, order.order), Executing(self.id, True), Unwanted(self.id))

    def park(self, order: Park) -> None:
        self.phase = Phase.PARKING
        self.world.after(self.world.rules.costs.of(self.memory), lambda: self._parked(order))

    def _parked(self, order: Park) -> None:
        if self.id not in self.world.kernels:
            return
        self.gave()
        self.phase = Phase.PARKED
        told = [Parked(self.id, order.order, self.memory)]
        if self.world.rules.movable:  # its state is at home nowhere
            told.append(self._word(Phase.PARKED))
        self.world.tell(*told)

    def end(self) -> None:
        if self.phase in (Phase.HOLDING, Phase.PARKING):
            self.gave()
        del self.world.kernels[self.id]
        self.world.tell(KernelGone(self.id))

    def denied(self, order: Deny) -> None:
        self.world.after(0.0, lambda: self._denied(order))

    def _denied(self, order: Deny) -> None:
        self.fail()
        self.world.tell(Denied(self.id, order.order), Unwanted(self.id))

    def _seen(self, phase: Phase) -> None:
        self.world.tell(self._word(phase))

    def _word(self, phase: Phase) -> KernelSeen:
        wanted = self.cell is not None and self.cell.gpus > 0 and not self.running
        return KernelSeen(
            self.id, self.session.user, self.gpus, self.node, phase=phase, parked_bytes=self.memory, wanted=wanted
        )  # fmt: skip


class KeepingKernel(Kernel):
    """No cell runs before the GPUs are there, as the pod isn't. Its state can't leave them: the exclusive rung, for the book."""

    alive = False
    asked = False
    _idle_since = 0.0

    def born(self) -> None:
        self._ask()

    def _ask(self) -> None:
        self.asked = True
        self.world.tell(
            KernelSeen(self.id, self.session.user, self.gpus, self.world.place(self.session), rung=Rung.EXCLUSIVE), Wanted(self.id)
        )

    def sent(self, cell: Cell) -> None:
        if self.alive:
            self._run()
        elif not self.asked:
            self._ask()

    def _run(self) -> None:
        self.run()
        self.world.tell(Executing(self.id, True))

    def ran(self, cell: Cell) -> None:
        self.world.tell(Executing(self.id, False))
        self._idle()

    def granted(self, order: Grant) -> None:
        self.got()
        self.world.after(0.0, lambda: self._started(order))

    def _started(self, order: Grant) -> None:
        self.alive = True
        self.world.tell(Resumed(self.id, order.order), Unwanted(self.id))
        if self.cell is not None:
            self._run()
        else:
            self._idle()

    def _idle(self) -> None:
        since = self._idle_since = self.world.now
        if self.world.rules.cull_after is not None:
            self.world.after(self.world.rules.cull_after, lambda: self._cull(since))

    def _cull(self, since: float) -> None:
        if self.alive and self.cell is None and self._idle_since == since:
            self._stop()

    def _stop(self) -> None:
        if self.alive:
            self.gave()
        self.alive = self.asked = False
        self.world.tell(KernelGone(self.id))

    def end(self) -> None:
        self._stop()
        del self.world.kernels[self.id]

    def denied(self, order: Deny) -> None:
        self.world.after(0.0, self._failed)

    def _failed(self) -> None:
        self._stop()
        if self.cell is not None:
            self.fail()

    def park(self, order: Park) -> None:
        raise AssertionError("a kernel that keeps its GPUs was told to give them up")
