"""Whether a burst goes on after it has lost workers: not how often it has counts, but whether anything came of going on. Pure.

What a group has done and not saved is lost with it, so only what was saved is progress; and where the cell's loops are known, only what was
saved farther along. It must never end a long run for many losses that cost little.
"""

from __future__ import annotations

MOST_UNSAVED = 3  # losses with nothing saved in between: each time they begin where they began before
MOST_IN_PLACE = 10  # losses between which something was saved, but with all loops where they were


class Losses:
    """``saved`` and ``lost`` say what has happened, in its order."""

    def __init__(self) -> None:
        self._unsaved = self._in_place = 0
        self._where = ""

    def saved(self, where: str) -> None:
        """``where``: the loops' places in words, "" where there are none: then every save is progress, for all that is known."""
        self._unsaved = 0
        if not where or where != self._where:
            self._in_place, self._where = 0, where

    def lost(self) -> None:
        self._unsaved += 1
        self._in_place += 1

    def too_many(self) -> str:
        """Why one more would be one too many, for people; "" where it wouldn't."""
        if self._unsaved >= MOST_UNSAVED:
            return (
                f"Workers were lost {self._unsaved + 1} times, and nothing was saved in between (--save-every says how often that is done)."
            )
        if self._in_place >= MOST_IN_PLACE:
            return f"Workers were lost {self._in_place + 1} times, and came no farther in between than {self._where}."
        return ""
