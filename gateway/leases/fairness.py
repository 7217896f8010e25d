"""Whose turn it is: the user who has had least GPU time lately, and within a user who came first.

Deterministic; it must never know of GPUs or phases.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence

from .record import KernelRecord


class Usage:
    """GPU-seconds of each user, halved every ``half_life`` seconds (None: never)."""

    def __init__(self, half_life: float | None) -> None:
        self._decay = 0.0 if half_life is None else math.log(2) / half_life
        self._had: dict[str, tuple[float, float]] = {}  # user: GPU-seconds at a moment
        self._held: dict[str, int] = {}  # user: GPUs now

    def held(self, user: str) -> int:
        return self._held.get(user, 0)

    def of(self, user: str, now: float) -> float:
        """What the user has had until ``now``, decayed."""
        had, at = self._had.get(user, (0.0, now))
        held, time = self._held.get(user, 0), now - at
        if not self._decay:
            return had + held * time
        left = math.exp(-self._decay * time)
        return had * left + held * (1 - left) / self._decay

    def change(self, user: str, gpus: int, now: float) -> None:
        """The user holds so many GPUs more (or fewer) from ``now`` on."""
        self._had[user] = self.of(user, now), now
        self._held[user] = self._held.get(user, 0) + gpus
        if not self._held[user]:
            del self._held[user]

    def set_half_life(self, half_life: float | None, now: float) -> None:
        for user in list(self._had):
            self.change(user, 0, now)
        self._decay = 0.0 if half_life is None else math.log(2) / half_life


def fair_order(waiting: Mapping[str, Sequence[KernelRecord]], usage: Usage, turn: float, now: float) -> Iterator[KernelRecord]:
    """The waiters, next one first. ``waiting``: each user's, first come first.

    Every GPU that a user holds, or has waiters ahead for, counts as ``turn`` GPU-seconds to come: so users alternate in the
    queue, and one who asks with ten kernels at once does not come ten times before the next. Lazy: the head costs one step.
    """
    heap = [
        (usage.of(user, now) + turn * usage.held(user), records[0].wanted_since, records[0].seq, user, 0)
        for user, records in waiting.items()
        if records
    ]
    heapq.heapify(heap)
    while heap:
        had, _, _, user, at = heap[0]
        record = waiting[user][at]
        yield record
        if at + 1 < len(waiting[user]):
            follower = waiting[user][at + 1]
            heapq.heapreplace(heap, (had + turn * record.count, follower.wanted_since, follower.seq, user, at + 1))
        else:
            heapq.heappop(heap)
