"""How the cell that runs is interrupted: by SIGINT, or by the kernel's own message, and so that it is heard.

It must never interrupt a kernel that is only coming up or ending.
"""

from __future__ import annotations

from typing import Callable, Optional

from ..protocol.model import Spec
from .child import Child
from .reactor import Reactor

POKES = (0.05, 0.3, 1.0)  # seconds after it: on a busy machine the signal may come after the first


class Interrupting:
    """``ready()`` says whether the kernel takes requests, ``poke()`` asks it something that is answered at once, ``ask()`` sends its own
    interrupt message."""

    def __init__(
        self, reactor: Reactor, spec: Spec, ready: Callable[[], bool], poke: Callable[[], None], ask: Callable[[], None]
    ) -> None:  # fmt: skip
        self._reactor, self._spec, self._ready, self._poke, self._ask = reactor, spec, ready, poke, ask

    def interrupt(self, child: Optional[Child]) -> None:
        """And a poke, because a loop that awaits only looks when it is woken."""
        if child is None or not self._ready():  # one that still imports would die of it, and one that ends is ending
            return
        if self._spec.interrupt_mode == "message":
            self._ask()
        else:
            child.signal(2)
        for delay in POKES:
            self._reactor.call_later(delay, self._wake)

    def _wake(self) -> None:
        if self._ready():
            self._poke()
