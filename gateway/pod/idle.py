"""Replies of cells wait here for their ``idle``: whoever has a cell's reply then has all of its output, and no ``idle`` is lost for good.

A kernel sends them on two sockets, and a flood of output holds up one of them; clients that have the reply stop listening soon after.
Pure but for the clock that it is given.
"""

from __future__ import annotations

from typing import Generic, Optional, TypeVar

T = TypeVar("T")

SILENCE = 2.0  # seconds without a word on iopub after which a reply without its idle is looked into


class IdleWatch(Generic[T]):
    """Told of replies and idles, it says which replies may go. ``T`` is a reply with all that is needed to send it.

    That nothing comes proves nothing: a hundred megabytes may be on their way. Proof is a later message, so for what is
    ``overdue`` the kernel is asked for one, and only then it is given up.
    """

    def __init__(self, now: float) -> None:
        self._heard = now
        self._owed: dict[str, tuple[T, float]] = {}  # with when the reply came
        self._early: set[str] = set()  # whose idle came before its reply

    def heard(self, now: float) -> None:
        """The kernel has published something."""
        self._heard = now

    def replied(self, msg_id: str, reply: T, now: float) -> bool:
        """Whether the reply may go now; else ``idle`` or ``give_up`` will give it back."""
        if msg_id in self._early:
            self._early.remove(msg_id)
            return True
        self._owed[msg_id] = reply, now
        return False

    def idle(self, msg_id: str, running: bool) -> Optional[T]:
        """The reply that waited for this. ``running``: it has not come yet."""
        reply, _ = self._owed.pop(msg_id, (None, 0.0))
        if reply is None and running:
            self._early.add(msg_id)
        return reply

    def closed(self, msg_id: str) -> None:
        """It waits for nothing any more."""
        self._early.discard(msg_id)

    def overdue(self, now: float) -> frozenset[str]:
        """Whose idle should have come by now."""
        return frozenset(msg_id for msg_id, (_, at) in self._owed.items() if now - max(self._heard, at) >= SILENCE)

    def give_up(self, msg_ids: frozenset[str]) -> list[T]:
        """What was published after them has come: the replies whose idle won't come any more."""
        return [self._owed.pop(msg_id)[0] for msg_id in msg_ids if msg_id in self._owed]

    def rest(self) -> list[T]:
        """The kernel has ended: all that is left."""
        self._early.clear()
        return self.give_up(frozenset(self._owed))
