"""Where nested loops stand. Pure.

A commit says that the iteration under way in the innermost loop is done; those around it are not. It must never count an iteration
twice, nor leave one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class _Loop:
    name: str
    at: int  # where this iteration began
    after: int  # where the next one does


class Loops:
    """``committed``: where each loop went on when the state was saved, by name."""

    def __init__(self, committed: Mapping[str, int]) -> None:
        self._resume = dict(committed)
        self._open: list[_Loop] = []
        self.committed = dict(committed)

    def enter(self, name: str) -> int:
        """A loop begins. Returns the place that it begins at: 0, or where it was left. Raises ``ValueError`` where it runs already."""
        if any(loop.name == name for loop in self._open):
            raise ValueError(f"The loop {name!r} runs already around this one: give this one another name.")
        start = self._resume.pop(name, 0)
        self._open.append(_Loop(name, start, start))
        return start

    def step(self, name: str, at: int, after: int) -> None:
        """An iteration begins at ``at``; the next will at ``after``."""
        while self._open[-1].name != name:  # a loop inside of it that was left by an exception
            self._open.pop()
        if at != self._open[-1].at:
            self._resume.clear()  # what was left inside of an earlier iteration is of no use in this one
        self._open[-1].at, self._open[-1].after = at, after

    def leave(self, name: str) -> None:
        """It is over, to its end or not."""
        if any(loop.name == name for loop in self._open):
            while self._open.pop().name != name:
                pass

    def commit(self) -> None:
        *around, inner = self._open or [None]
        self.committed = {loop.name: loop.at for loop in around if loop is not None}
        if inner is not None:
            self.committed[inner.name] = inner.after

    def around(self) -> dict[str, int]:
        """Where the loops that run are, from the outermost."""
        return {loop.name: loop.at for loop in self._open}
