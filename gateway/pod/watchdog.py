"""What runs while the state is parked may hang on it, and then has to ask for the GPU like a cell that waits.

It must never touch the kernel: it looks, and tells the gate.
"""

from __future__ import annotations

import time
from typing import Callable

from ..protocol.model import Phase
from .gate import Gate
from .reactor import Reactor
from .stall import Stalled, progress


class Watchdog:
    """``seconds``: how long a request may make no progress; ``pid()``: the kernel; ``changed()`` is called where it asks for the GPU."""

    def __init__(self, reactor: Reactor, gate: Gate, seconds: float, pid: Callable[[], int], changed: Callable[[], None]) -> None:
        self._reactor, self._gate, self._seconds, self._pid, self._changed = reactor, gate, seconds, pid, changed
        self._stalled = Stalled(seconds)

    def watch(self) -> None:
        """Look now, and go on looking."""
        self._reactor.call_later(self._seconds / 4, self.watch)
        if self._gate.rest is not Phase.PARKED or not self._gate.in_flight or self._gate.stalled:
            self._stalled.clear()
        elif self._stalled.feed(progress(self._pid()), time.monotonic()):
            self._stalled.clear()
            self._gate.stall()
            self._changed()
