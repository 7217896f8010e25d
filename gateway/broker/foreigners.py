"""Who waits for a GPU of ours and is no kernel of ours, such as a pod of somebody else: each counts like the kernel of a new user.

It only says what the lease book is to be told. What the book grants them is given back, and they take it; it must never reach anybody.
"""

from __future__ import annotations

from ..backends.base import Foreign
from ..leases import events
from ..leases.book import Book
from ..leases.events import Event
from ..protocol.model import Phase


class Foreigners:
    """``names``: those that the book knows."""

    def __init__(self, book: Book) -> None:
        self.names: set[str] = set()
        self._book = book
        self._all: tuple[Foreign, ...] = ()  # that we have been told of

    def wait(self, everybody: tuple[Foreign, ...]) -> list[Event]:
        """These wait now, and nobody else. On drained nodes nobody does."""
        self._all, drained = everybody, self._book.drained
        waits = {each.name: (each.count, nodes) for each in everybody if (nodes := [node for node in each.nodes if node not in drained])}
        told: list[Event] = [events.KernelGone(name) for name in self.names if name not in waits]
        self.names &= waits.keys()
        for name, (count, nodes) in waits.items():
            if name not in self.names:
                node = max(nodes, key=lambda node: len(self._book.devices.idle(node)))
                self.names.add(name)
                told.append(events.KernelSeen(name, name, count, node, display=name, phase=Phase.WAITING, wanted=True))
        return told

    def leave(self) -> list[Event]:
        """Before what the nodes are changes."""
        told: list[Event] = [events.KernelGone(name) for name in self.names]
        self.names.clear()
        return told

    def come_back(self) -> list[Event]:
        """After that."""
        return self.wait(self._all)
