"""Who waits, by node: the nodes' lines are apart, the fair order is over a user's GPU time anywhere.

It must never know why somebody waits, nor serve anyone.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from .fairness import Usage, fair_order
from .record import KernelRecord


def _arrival(record: KernelRecord) -> tuple[float, int]:
    return record.wanted_since, record.seq


class Queue:
    """``weight``: a user's share; ``priority``: a waiter's, which counts before the fair order."""

    def __init__(self, usage: Usage, weight: Callable[[str], float], priority: Callable[[KernelRecord], int]) -> None:
        self._usage, self._weight, self._priority = usage, weight, priority
        self._waiting: dict[str, dict[str, list[KernelRecord]]] = defaultdict(dict)  # node: user: first come first
        self._promised: dict[str, dict[str, KernelRecord]] = defaultdict(dict)  # node: for whom GPUs are being parked
        self._length: dict[str, int] = defaultdict(int)
        self.ranked = False  # priorities differ

    def nodes(self) -> Iterator[str]:
        """Where somebody waits."""
        return (node for node, length in self._length.items() if length)

    def length(self, node: str) -> int:
        return self._length[node]

    def join(self, record: KernelRecord) -> None:
        bisect.insort(self._waiting[record.node].setdefault(record.user, []), record, key=_arrival)
        self._length[record.node] += 1

    def leave(self, record: KernelRecord) -> None:
        line = self._waiting[record.node][record.user]
        line.remove(record)
        if not line:
            del self._waiting[record.node][record.user]
        self._length[record.node] -= 1
        self._promised[record.node].pop(record.kernel_id, None)

    def promise(self, record: KernelRecord) -> None:
        """Others give way for this one: it stays ahead of whoever comes, or they would have given way in vain."""
        self._promised[record.node].setdefault(record.kernel_id, record)

    def promised(self, record: KernelRecord) -> bool:
        return record.kernel_id in self._promised[record.node]

    def order(self, node: str, turn: float, now: float) -> Iterator[KernelRecord]:
        """The node's waiters, next one first. Lazy; the queue mustn't change meanwhile."""
        promised = self._promised[node]
        yield from promised.values()
        for line in self._lines(node):
            for record in fair_order(line, self._usage, turn, now, self._weight):
                if record.kernel_id not in promised:
                    yield record

    def _lines(self, node: str) -> Iterable[dict[str, list[KernelRecord]]]:
        """The waiters of each priority, the highest first."""
        if not self.ranked:
            return [self._waiting[node]]
        lines: dict[int, dict[str, list[KernelRecord]]] = defaultdict(dict)
        for user, records in self._waiting[node].items():
            for record in records:
                lines[self._priority(record)].setdefault(user, []).append(record)
        return [lines[priority] for priority in sorted(lines, reverse=True)]
