"""Who waits for a GPU of ours and is no kernel of ours, such as a pod of somebody else: each counts like the kernel of a new user.

It only says what the lease book is to be told. What the book grants them is given back, and they take it; whoever doesn't waits for
something else besides, and kernels have it meanwhile. It must never reach anybody.
"""

from __future__ import annotations

from ..backends.base import Foreign
from ..leases import events
from ..leases.book import Book
from ..leases.events import Event
from ..protocol.model import Phase

TAKES = 60.0  # seconds in which what was left for somebody is taken: a slot's grace, and a scheduler's longest pause after failures
AGAIN = 300.0  # seconds after which whoever didn't take it counts again


class Foreigners:
    """``names``: those that the book knows. ``now`` is the book's."""

    def __init__(self, book: Book) -> None:
        self.names: set[str] = set()
        self._book = book
        self._all: tuple[Foreign, ...] = ()  # that we have been told of
        self._passed: dict[str, float] = {}  # who didn't take what was left for them, and until when they don't count

    def wait(self, everybody: tuple[Foreign, ...], now: float) -> list[Event]:
        """These wait now, and nobody else. On drained nodes nobody does."""
        self._all, there = everybody, {each.name for each in everybody}
        self._passed = {name: until for name, until in self._passed.items() if until > now and name in there}
        waits = {each.name: (each, nodes) for each in everybody if each.name not in self._passed and (nodes := self._nodes(each))}
        told: list[Event] = [events.KernelGone(name) for name in self.names if name not in waits]
        self.names &= waits.keys()
        for name, (each, nodes) in waits.items():
            best = max(nodes, key=lambda node: self._soon(node, each.resource))
            if name not in self.names or self._better(name, best, each.resource):
                self.names.add(name)
                told.append(
                    events.KernelSeen(
                        name, name, each.count, best, display=name, phase=Phase.WAITING, wanted=True, resource=each.resource, outside=True
                    )
                )
        return told

    def review(self, now: float) -> list[Event]:
        """Time has passed. Called every few seconds."""
        for name in self.names:
            record = self._book.kernels[name]
            if record.gpus and now - record.since > TAKES:
                self._passed[name] = now + AGAIN
        return self.wait(self._all, now)

    def leave(self) -> list[Event]:
        """Before what the nodes are changes."""
        told: list[Event] = [events.KernelGone(name) for name in self.names]
        self.names.clear()
        return told

    def come_back(self, now: float) -> list[Event]:
        """After that."""
        return self.wait(self._all, now)

    def _nodes(self, each: Foreign) -> list[str]:
        """Those that could ever serve it."""
        book = self._book
        return [node for node in each.nodes if node not in book.drained and book.devices.size(node, each.resource) >= each.count]

    def _soon(self, node: str, resource: str) -> int:
        """How much there is to be had now."""
        devices = self._book.devices
        free = sum(resource in ("", devices.gpus[uuid].resource) for uuid in devices.free(node))
        return free + sum(resource in ("", record.resource) for record in devices.idle(node))

    def _better(self, name: str, node: str, resource: str) -> bool:
        """It waits where nothing is to be had, and elsewhere something is."""
        record = self._book.kernels[name]
        return record.phase is Phase.WAITING and not self._soon(record.node, resource) and self._soon(node, resource) > 0
