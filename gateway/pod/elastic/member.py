"""This rank in its group: told when the group is to leave, it leaves at the very commit at which all others do.

Between two commits nothing is asked of anybody: no collective call, and microseconds for a look whether something was said. It must
never leave elsewhere than in a commit, nor before what has been done until then is saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Protocol

from ...protocol import burst

TOLD_SECONDS = 1.0  # between two words on how far the loops are


class Line(Protocol):
    """To the agent. ``hear`` returns its next word; None where there is none now and ``wait`` is false."""

    def say(self, kind: str, **fields: Any) -> None: ...

    def hear(self, wait: bool) -> Optional[dict[str, Any]]: ...


class Left(BaseException):
    """Raised through the cell by a commit: its group leaves here, and another goes on from what was saved."""


class Member:
    """``start``: the file that the group goes on from, None: from the beginning. ``save_every``: seconds between two saves."""

    def __init__(
        self, line: Line, folder: Path, start: Optional[str], rank: int, world: int, save_every: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.rank, self.world, self.start = rank, world, None if start is None else folder / start
        self._line, self._folder, self._save_every, self._clock = line, folder, save_every, clock
        self._commits = 0
        self._until: Optional[int] = None  # the commit at which the group leaves
        self._left = False
        self._saved_at = clock() if start is not None else float("-inf")
        self._saves = 0 if start is None else burst.state_number(start)
        self._told_at = float("-inf")

    def commit(self, save: Callable[[Path], None], where: str) -> None:
        """All until here is done. ``save``: writes it; ``where``: what people read of it. Raises ``Left``."""
        if self._left:
            raise Left
        if not self._commits:
            self._line.say(burst.COMMITS)
        self._commits += 1
        while self._commits != self._until and (word := self._line.hear(wait=False)) is not None:
            self._listen(word)
        leaves = self._commits == self._until
        if self.rank == 0:
            now = self._clock()
            if leaves or now - self._saved_at >= self._save_every:
                self._save(save, where, leaves)
            elif where and now - self._told_at >= TOLD_SECONDS:
                self._told_at = now
                self._line.say(burst.STEP, text=where)
        if leaves:
            self._left = True
            raise Left

    def _listen(self, word: Optional[dict[str, Any]]) -> None:
        """Asked to leave, it says how far it is and waits for the agent to have heard that of all."""
        if word is None or word["t"] != burst.LEAVE:
            return
        self._line.say(burst.AT, commits=self._commits, asked=word["asked"])
        answer = self._line.hear(wait=True)
        while answer is not None and (answer["t"] not in (burst.STAY, burst.UNTIL) or answer["asked"] != word["asked"]):
            answer = self._line.hear(wait=True)
        if answer is not None and answer["t"] == burst.UNTIL:
            self._until = answer["commits"]

    def _save(self, save: Callable[[Path], None], where: str, leaves: bool) -> None:
        self._saves += 1
        self._saved_at = self._clock()
        name = burst.state_name(self._saves)
        try:
            save(self._folder / name)
        except OSError as exc:
            if leaves:
                raise
            self._line.say(
                burst.NOTE, text=f"Its state could not be saved: {exc.strerror or exc}. A lost worker would cost more than usual."
            )
            return
        self._line.say(burst.SAVED, file=name, text=where)


_here: Optional[Member] = None


def join(member: Optional[Member]) -> None:
    """This process is a rank from now on (None: no longer)."""
    global _here
    _here = member


def here() -> Optional[Member]:
    """This process's part in a burst; None where it is no rank."""
    return _here
