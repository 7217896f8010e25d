"""Cells that were answered and whose ``idle`` is still owed, so that none is lost for good.

A cell's reply and its ``idle`` come on two sockets, in either order. Pure but for the clock that it is given.
"""

from __future__ import annotations

from .gate import Request

SILENCE = 2.0  # seconds without a word on iopub after which a reply without its idle means that the idle was lost


class IdleWatch:
    """Told of replies and idles, it says which idles have to be told in the kernel's place."""

    def __init__(self, now: float) -> None:
        self._heard = now
        self._owed: dict[str, Request] = {}
        self._early: set[str] = set()

    def heard(self, now: float) -> None:
        """The kernel has published something."""
        self._heard = now

    def replied(self, request: Request) -> None:
        if request.msg_id in self._early:
            self._early.discard(request.msg_id)
        else:
            self._owed[request.msg_id] = request

    def idle(self, msg_id: str, running: bool) -> None:
        """``running``: its reply has not come yet."""
        if self._owed.pop(msg_id, None) is None and running:
            self._early.add(msg_id)

    def lost(self, now: float) -> list[Request]:
        """Whose idle won't come any more."""
        if now - self._heard < SILENCE:
            return []
        lost, self._owed = list(self._owed.values()), {}
        return lost

    def reset(self) -> None:
        self._owed.clear()
        self._early.clear()
