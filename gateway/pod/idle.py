"""Replies of cells wait here for their ``idle``: whoever has a cell's reply then has all of its output, and no ``idle`` is lost for good.

A kernel sends them on two sockets, and a flood of output holds up one of them; clients that have the reply stop listening soon after.
Pure but for the clock that it is given.
"""

from __future__ import annotations

from typing import Generic, Optional, TypeVar

T = TypeVar("T")

SILENCE = 2.0  # seconds without a word on iopub after which a reply without its idle means that the idle was lost


class IdleWatch(Generic[T]):
    """Told of replies and idles, it says which replies may go. ``T`` is a reply with all that is needed to send it."""

    def __init__(self, now: float) -> None:
        self._heard = now
        self._owed: dict[str, T] = {}
        self._early: set[str] = set()

    def heard(self, now: float) -> None:
        """The kernel has published something."""
        self._heard = now

    def replied(self, msg_id: str, reply: T) -> bool:
        """Whether the reply may go now; else ``idle`` or ``lost`` will give it back."""
        if msg_id in self._early:
            self._early.discard(msg_id)
            return True
        self._owed[msg_id] = reply
        return False

    def idle(self, msg_id: str, running: bool) -> Optional[T]:
        """The reply that waited for this. ``running``: it has not come yet."""
        reply = self._owed.pop(msg_id, None)
        if reply is None and running:
            self._early.add(msg_id)
        return reply

    def lost(self, now: float) -> list[T]:
        """Replies whose idle won't come any more."""
        return self.rest() if now - self._heard >= SILENCE else []

    def rest(self) -> list[T]:
        """The kernel has ended: all that is left."""
        lost, self._owed = list(self._owed.values()), {}
        self._early.clear()
        return lost
