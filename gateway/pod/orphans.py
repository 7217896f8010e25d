"""A container's first process gets every orphan of the container, and has to take note of their ends, or they stay as zombies.

It must never take the end of a child away from who waits for it.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Optional

from .processes import zombies
from .reactor import Reactor

LATER = 0.05  # seconds after a child has ended: others' ends come along, and who waits for the child has taken note


class Orphans:
    """``spared()``: the process id of the child that somebody else waits for, or None."""

    def __init__(self, reactor: Reactor, spared: Callable[[], Optional[int]]) -> None:
        self._reactor, self._spared = reactor, spared
        self._due = False

    def watch(self) -> None:
        """To be called where the loop is woken by signals. Does nothing where orphans go to another process."""
        if os.getpid() == 1:
            signal.signal(signal.SIGCHLD, lambda *_: self._reactor.call_later(0, self._ended))
            self._ended()

    def _ended(self) -> None:
        if not self._due:
            self._due = True
            self._reactor.call_later(LATER, self._reap)

    def _reap(self) -> None:
        self._due = False
        for pid in zombies(os.getpid()):
            if pid != self._spared():
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass  # one of ours, of which whoever started it has taken note meanwhile
