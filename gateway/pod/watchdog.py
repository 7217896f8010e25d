"""What runs while the state is parked may hang on it, and then has to ask for the GPU like a cell that waits; what ends hangs for ever.

It must never touch the kernel: it looks, and tells the gate, or whoever can end a process.
"""

from __future__ import annotations

import time
from typing import Callable

from ..protocol.model import Phase
from .gate import Gate
from .reactor import Reactor
from .stall import Sample, Stalled, progress


class Watchdog:
    """``seconds``: how long a request may make no progress; ``pid()``: the kernel; ``changed()`` is called where it asks for the GPU.
    ``ends()``: it was asked to end; ``kill(why)`` is called where that hangs, as what a program frees at its end may lie on the GPU."""

    def __init__(
        self, reactor: Reactor, gate: Gate, seconds: float, pid: Callable[[], int], changed: Callable[[], None],
        ends: Callable[[], bool], kill: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._reactor, self._gate, self._seconds, self._pid, self._changed = reactor, gate, seconds, pid, changed
        self._ends, self._kill = ends, kill
        self._stalled = Stalled(seconds)

    def watch(self) -> None:
        """Look now, and go on looking."""
        self._reactor.call_later(self._seconds / 4, self.watch)
        if self._gate.rest is not Phase.PARKED or not (self._ends() or self._asks()):
            self._stalled.clear()
        elif self._stalled.feed(self._sample(), time.monotonic()):
            self._stalled.clear()
            if self._ends():
                self._kill("The kernel was asked to end and hung on its GPU state, which is parked: it was killed.")
            else:
                self._gate.stall()
                self._changed()

    def _asks(self) -> bool:
        return bool(self._gate.in_flight or self._gate.one_way) and not self._gate.stalled

    def _sample(self) -> Sample:
        """Subshells and what comes on control run on threads of their own, so that what the first thread does tells nothing of them."""
        sample, lanes = progress(self._pid()), {each.lane for each in (*self._gate.in_flight.values(), *self._gate.one_way.values())}
        return sample if lanes <= {""} or self._ends() else sample._replace(resting=None)
