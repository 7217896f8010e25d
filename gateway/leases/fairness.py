"""Whose turn it is: the user who has had least GPU time lately, and within a user who came first.

Deterministic; it must never know of GPUs or phases.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from .record import KernelRecord

_FADED = 30.0  # e-foldings after which the books are kept from a new moment on, so that numbers stay small


class Usage:
    """GPU-seconds of each user, halved every ``half_life`` seconds (None: never).

    What a user has had until now is ``past * fade + held * each``, where only ``fade`` and ``each`` depend on now: so all users
    can be compared at one moment for the price of one exponential.
    """

    def __init__(self, half_life: float | None) -> None:
        self._rate = 0.0 if half_life is None else math.log(2) / half_life
        self._start = 0.0
        self._past: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def held(self, user: str) -> int:
        """The user's GPUs now."""
        return self._held.get(user, 0)

    def of(self, user: str, now: float) -> float:
        """What the user has had until ``now``, decayed."""
        return self.reckon([user], now)[user]

    def reckon(self, users: Iterable[str], now: float, turn: float = 0.0) -> dict[str, float]:
        """The same for many, and ``turn`` GPU-seconds more for each GPU that a user holds."""
        fade, each = self._scale(now)
        past, held, each = self._past.get, self._held.get, each + turn
        return {user: past(user, 0.0) * fade + held(user, 0) * each for user in users}

    def change(self, user: str, gpus: int, now: float) -> None:
        """The user holds so many GPUs more (or fewer) from ``now`` on."""
        if self._rate * (now - self._start) > _FADED:
            self._restart(now, self._rate)
        fade, each = self._scale(now)
        self._past[user] = self._past.get(user, 0.0) - gpus * each / fade
        self._held[user] = self._held.get(user, 0) + gpus
        if not self._held[user]:
            del self._held[user]

    def set_half_life(self, half_life: float | None, now: float) -> None:
        self._restart(now, 0.0 if half_life is None else math.log(2) / half_life)

    def _scale(self, now: float) -> tuple[float, float]:
        if not self._rate:
            return 1.0, now - self._start
        return math.exp(-self._rate * (now - self._start)), 1 / self._rate

    def _restart(self, now: float, rate: float) -> None:
        had = self.reckon(self._past, now)
        self._start, self._rate = now, rate
        each = self._scale(now)[1]
        self._past = {user: had[user] - self._held.get(user, 0) * each for user in had if had[user] > 1e-3 or user in self._held}


def fair_order(
    waiting: Mapping[str, Sequence[KernelRecord]], usage: Usage, turn: float, now: float, weight: Callable[[str], float] = lambda user: 1.0
) -> Iterator[KernelRecord]:
    """The waiters, next one first. ``waiting``: each user's (one at least), first come first. ``weight``: what each user's GPU time
    is divided by before it is compared (0: whoever has one comes after all others).

    Every GPU that a user holds, or has waiters ahead for, counts as ``turn`` GPU-seconds to come: so users alternate in the
    queue, and one who asks with ten kernels at once does not come ten times before the next. Lazy: the head costs one step.
    """
    had = {user: _per(seconds, weight(user)) for user, seconds in usage.reckon(waiting, now, turn).items()}
    heap = [(had[user], records[0].wanted_since, records[0].seq, user, 0) for user, records in waiting.items()]
    heapq.heapify(heap)
    while heap:
        ahead, _, _, user, at = heap[0]
        record = waiting[user][at]
        yield record
        if at + 1 < len(waiting[user]):
            follower = waiting[user][at + 1]
            heapq.heapreplace(heap, (ahead + _per(turn * record.count, weight(user)), follower.wanted_since, follower.seq, user, at + 1))
        else:
            heapq.heappop(heap)


def _per(seconds: float, weight: float) -> float:
    return seconds / weight if weight else math.inf
