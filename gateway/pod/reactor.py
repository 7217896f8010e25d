"""The supervisor's loop: ZMQ sockets, file descriptors and timers on one thread.

asyncio would cost a supervisor ten megabytes and each message a tenth of a millisecond. A callback must never block: while one
runs, no cell of this kernel moves.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from typing import Any, Callable, Optional

import zmq

from ..protocol.multipart import take

log = logging.getLogger(__name__)


class Timer:
    """A call that is due at ``when`` (monotonic seconds); ``cancel()`` is free and idempotent."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Optional[Callable[[], None]] = call

    def cancel(self) -> None:
        self.call = None


class Reactor:
    """Runs callbacks until ``stop``. An exception in one is logged and harms no other."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._callbacks: dict[Any, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._after: list[Callable[[], None]] = []
        self._running = False

    def add(self, source: Any, callback: Callable[[], None]) -> None:
        """Call back whenever ``source`` (a ZMQ socket or a file descriptor) can be read."""
        self._poller.register(source, zmq.POLLIN)
        self._callbacks[source] = callback

    def remove(self, source: Any) -> None:
        if self._callbacks.pop(source, None):
            self._poller.unregister(source)

    def after_each_turn(self, callback: Callable[[], None]) -> None:
        """Call back at the end of each turn of the loop, however many things happened in it."""
        self._after.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._timers, (timer.when, next(self._count), timer))
        return timer

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        self._running = True
        while self._running:
            for source, _ in self._poller.poll(self._patience()):
                callback = self._callbacks.get(source)
                if callback:  # else removed by a callback of this very turn
                    self._guard(callback)
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                if timer.call:
                    self._guard(timer.call)
            for callback in self._after:
                self._guard(callback)

    def _patience(self) -> Optional[int]:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0, int((self._timers[0][0] - time.monotonic()) * 1000) + 1)

    @staticmethod
    def _guard(callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("a callback failed")


def drain(socket: zmq.Socket, handle: Callable[[list[bytes]], None], most: int = 200) -> None:
    """Hand every multipart message that is there to ``handle``, ``most`` at a time so that no socket starves another."""
    for _ in range(most):
        try:
            frames = take(socket)
        except zmq.Again:
            return
        try:
            handle(frames)
        except Exception:
            log.exception("a message could not be handled")
