"""When a group leaves: all of its ranks at the same commit. Pure.

They are asked how far they are, and wait with their answer; those that are behind go on until they are as far as the first. It must never
let a rank wait for one that comes to no further commit.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

PATIENCE = 20.0  # seconds for all ranks to come to a commit, from the first that has; then they go on, and are asked again later
AGAIN = 5.0  # seconds until they are


class Answer(NamedTuple):
    """What the ranks are told: the commit after which they leave, None: they stay."""

    asked: int
    until: Optional[int]


class Leaving:
    """``world``: how many ranks there are."""

    def __init__(self, world: int) -> None:
        self._world = world
        self.asked = 0  # the question's number; 0: none was asked
        self.decided = False  # they leave
        self._at: dict[int, int] = {}  # commits of those that wait
        self._first = 0.0
        self._not_before = float("-inf")
        self._open = False

    def ask(self, now: float) -> Optional[int]:
        """The number of a question that is to be asked now, if one is."""
        if self._open or self.decided or now < self._not_before:
            return None
        self.asked, self._open = self.asked + 1, True
        self._at.clear()
        return self.asked

    def heard(self, rank: int, asked: int, commits: int, now: float) -> Optional[Answer]:
        if asked != self.asked or not self._open:
            return None  # it has been told to stay meanwhile
        if not self._at:
            self._first = now
        self._at[rank] = commits
        if len(self._at) < self._world:
            return None
        self._open, self.decided = False, True
        return Answer(self.asked, max(self._at.values()))

    def late(self, now: float) -> Optional[Answer]:
        """Has one waited long enough for the others?"""
        return self.stay(now) if self._at and now - self._first > PATIENCE else None

    def stay(self, now: float) -> Optional[Answer]:
        """There is no need to leave any more, or one is through with its cell and comes to no further commit."""
        if not self._open:
            return None
        self._open, self._not_before = False, now + AGAIN
        self._at.clear()
        return Answer(self.asked, None)
