"""What a burst's processes leave behind, however they turn their back on it, comes to the agent as its parent, and ends with them.

It must never end, nor take note of the end of, a process that the agent has started itself.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from typing import Optional

from .. import leftovers
from ..processes import children

_PR_SET_CHILD_SUBREAPER = 36
ROUNDS = 3  # of looking for those that have come meanwhile; what is left then hangs in a driver


def adopt() -> None:
    """From now on whoever descends from this process and loses its parent is a child of this one. Where that can't be, ``leftovers``
    finds what bears the mark of its burst."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def reap(ours: Collection[int]) -> None:
    """Take note of those that have ended, or they stay as zombies. ``ours``: children that somebody else waits for."""
    while (ended := _ended()) is not None and ended not in ours:
        os.waitpid(ended, os.WNOHANG)


def end(spared: Collection[int]) -> None:
    """All children but those ``spared``, and what descends from them; returns once they have ended."""
    for _ in range(ROUNDS):
        left = [pid for pid in children(os.getpid()) if pid not in spared]
        for pid in left:
            leftovers.end(pid, "")
        reap(spared)
        if not left:
            return


def _ended() -> Optional[int]:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid
