"""Virtual time: sessions send their cells, the lease book decides, its orders are carried out after what they cost.

The book is the real one and is told what a broker tells it. This module must never decide who gets a GPU, nor read a clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence

from ..leases import events
from ..leases.book import Book
from ..leases.events import Event, Grant, Park
from ..leases.placement import best_node
from ..protocol.errors import ElasticError
from ..protocol.model import Gpu, Rung
from .figures import Figures, Tally
from .kernels import ElasticKernel, KeepingKernel, Kernel
from .rules import Rules
from .trace import Session

ONE_NODE = "cluster"  # where a kernel isn't bound to a node: the nodes are flavors then, as a lease's GPUs are of one


def play(sessions: Sequence[Session], gpus: int, node_size: int, rules: Rules) -> Figures:
    """What these sessions see on so many GPUs, on nodes of ``node_size``. Raises ``ElasticError`` where one can't run at all."""
    for session in sessions:
        if session.gpus > min(gpus, node_size):
            raise ElasticError(
                f"Session {session.name} needs {session.gpus} GPUs on one node, and the largest has {min(gpus, node_size)}: "
                "give --gpus and --node-size of the cluster that it ran on.",
                reason="bad_usage",
            )
    return World(gpus, node_size, rules).run(sessions)


class World:
    """One run. Every kernel is told its orders, and tells the book (``tell``) what comes of them."""

    def __init__(self, gpus: int, node_size: int, rules: Rules) -> None:
        self.rules, self.now, self.tally = rules, 0.0, Tally()
        self.book = Book(rules.policy, places=False)
        self.kernels: dict[str, Kernel] = {}
        self._nodes = [f"node{at}" for at in range(-(-gpus // node_size))]
        self._ahead: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._bound = not (rules.keeps or rules.movable)
        self.tell(*(events.GpuSeen(self._gpu(at, self._nodes[at // node_size])) for at in range(gpus)))

    def run(self, sessions: Sequence[Session]) -> Figures:
        kind = KeepingKernel if self.rules.keeps else ElasticKernel
        for number, session in enumerate(sessions):
            kernel = kind(f"{number}", session, self)
            self.at(session.start, kernel.begin)
        while True:
            due = self.book.deadline(self.now)
            if self._ahead and (due is None or self._ahead[0][0] <= due):
                self.now, _, happens = heapq.heappop(self._ahead)
                happens()
            elif due is not None:
                self.now = max(self.now, due)
                self.tell(events.Tick())
            else:
                return self.tally.figures(self.rules.name)

    def at(self, moment: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._ahead, (moment, next(self._count), happens))

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        self.at(self.now + seconds, happens)

    def tell(self, *happened: Event) -> None:
        """Give the book these events of one moment and send its orders off."""
        for command in self.book.handle_all(happened, self.now):
            kernel = self.kernels[command.kernel_id]
            if isinstance(command, Grant):
                kernel.granted(command)
            elif isinstance(command, Park):
                kernel.park(command)
            else:
                kernel.denied(command)

    def place(self, session: Session) -> str:
        """The node on which the session's kernel starts."""
        return best_node(self.book, session.gpus, self._nodes) if self._bound else ONE_NODE

    def _gpu(self, number: int, node: str) -> Gpu:
        place = {"node": node} if self._bound else {"node": ONE_NODE, "flavor": node}
        return Gpu(f"gpu{number:05}", rung=Rung.ANYWHERE, **place)
