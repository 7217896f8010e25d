"""When something is due. One moment a key; it must never read a clock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable


class Timers:
    """A heap whose outdated entries are dropped when they come up."""

    def __init__(self) -> None:
        self._at: dict[Hashable, float] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._n = 0

    def set(self, key: Hashable, at: float) -> None:
        """``at`` replaces the key's earlier moment; infinity: nothing is due any more."""
        if at == self._at.get(key, math.inf):
            return
        if at == math.inf:
            del self._at[key]
            return
        self._at[key] = at
        self._n += 1
        heapq.heappush(self._heap, (at, self._n, key))
        if len(self._heap) > 64 + 4 * len(self._at):
            self._heap = [(at, n, key) for n, (key, at) in enumerate(self._at.items())]
            heapq.heapify(self._heap)

    def get(self, key: Hashable) -> float:
        return self._at.get(key, math.inf)

    def next(self) -> float | None:
        """The earliest moment, None: nothing is due."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: float) -> list[Hashable]:
        """The keys whose moment has come, earliest first; they are forgotten."""
        keys = []
        while (at := self.next()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            keys.append(key)
        return keys
