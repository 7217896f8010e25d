"""Who starts now, where many want to: so many at a time, whoever has the fewest starts under way first, then in order of arrival.

It must never keep a place from others for the sake of a start that waits for something else than this machine's processors.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

A_PROCESSOR = 3  # starts at a time for each processor: it is never without work, and the first are ready long before the last
LONG_SECONDS = 20.0  # a start that takes longer waits for something else, such as a slow disk, and no longer counts


def usual() -> int:
    """How many starts this machine's processors get through side by side."""
    return A_PROCESSOR * len(os.sched_getaffinity(0))


class Turns:
    """``most`` at a time, 0: all at once. ``later(seconds, call)`` returns what has ``cancel``."""

    def __init__(self, most: int, later: Callable[[float, Callable[[], None]], Any] | None = None) -> None:
        self._most = most
        self._later = later or (lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call))
        self._begun: dict[str, tuple[str, Any]] = {}  # by kernel: user, and the timer that ends its turn
        self._waiting: dict[str, tuple[str, asyncio.Future[None]]] = {}

    @property
    def full(self) -> bool:
        """Whoever comes now has to wait."""
        return bool(self._most) and (bool(self._waiting) or len(self._begun) >= self._most)

    async def take(self, kernel_id: str, user: str, told: Callable[[str], None]) -> None:
        """Wait for a turn, which lasts until ``give``. ``told`` is called with what it waits for, and with "" when it waits no more."""
        if not self.full:
            self._begin(kernel_id, user)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        told(
            f"This kernel waits for its turn: this machine starts {self._most} kernels at a time (LocalBackend.starts_at_once), and "
            f"{len(self._begun) + len(self._waiting)} came before."
        )
        self._waiting[kernel_id] = user, turn
        try:
            await turn
        except BaseException:
            self._waiting.pop(kernel_id, None)
            self.give(kernel_id)
            raise
        told("")

    def give(self, kernel_id: str) -> None:
        """Its start is over, or no longer counts. No error where it has no turn."""
        _, timer = self._begun.pop(kernel_id, ("", None))
        if timer is not None:
            timer.cancel()
            self._next()

    def _begin(self, kernel_id: str, user: str) -> None:
        if self._most:
            self._begun[kernel_id] = user, self._later(LONG_SECONDS, lambda: self.give(kernel_id))

    def _next(self) -> None:
        while self._waiting and len(self._begun) < self._most:
            starts = Counter(user for user, _ in self._begun.values())
            kernel_id = min(self._waiting, key=lambda each: starts[self._waiting[each][0]])
            user, turn = self._waiting.pop(kernel_id)
            if not turn.done():  # it may have been cancelled just now
                self._begin(kernel_id, user)
                turn.set_result(None)
