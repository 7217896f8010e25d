"""The first words with a new kernel process: until it answers on shell and is heard on iopub.

A cell that was sent before that could lose its first output, so it must never call a kernel ready on one of the two alone.
"""

from __future__ import annotations

from typing import Callable, Optional

from .reactor import Reactor, Timer

NUDGE = 0.1  # seconds between two questions, where it answers and isn't heard


class Greeting:
    """``ask()`` puts a question to it, ``ready()`` is called when it is."""

    def __init__(self, reactor: Reactor, ask: Callable[[], None], ready: Callable[[], None]) -> None:
        self._reactor, self._ask, self._ready = reactor, ask, ready
        self._answered = self._heard = self._done = False
        self._timer: Optional[Timer] = None

    def begin(self) -> None:
        self._ask()
        self._timer = self._reactor.call_later(NUDGE, self._nudge)

    def answered(self) -> None:
        self._answered = True
        self._look()

    def heard(self) -> None:
        self._heard = True
        self._look()

    def end(self) -> None:
        """The process has ended, or is known to be ready."""
        self._done = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if self._answered and self._heard and not self._done:
            self.end()
            self._ready()

    def _nudge(self) -> None:
        if self._answered:
            self._answered = False
            self._ask()
        self._timer = self._reactor.call_later(NUDGE, self._nudge)
