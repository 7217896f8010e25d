"""Replies that wait for an ``idle`` which never comes: what was published is lost where a kernel's output overflows.

It must never give one up that may still be on its way: the kernel has been asked something since, and what it published of that has come.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Generic, Optional

from ..protocol.wire import Part, loads
from .idle import IdleWatch, T
from .messages import Messages

log = logging.getLogger(__name__)


class LostIdle(Generic[T]):
    """``send(channel, parts)`` puts a question of our own to the kernel; ``close(reply)`` is called for each that is given up."""

    def __init__(
        self, idle: IdleWatch[T], messages: Messages, send: Callable[[str, list[Part]], None], close: Callable[[T], Any]
    ) -> None:  # fmt: skip
        self._idle, self._messages, self._send, self._close = idle, messages, send, close
        self._probe: Optional[tuple[str, frozenset[str]]] = None  # a question, and the cells whose idle it is asked for

    def look(self, now: float) -> None:
        overdue = self._idle.overdue(now)
        if overdue and (self._probe is None or self._probe[1] != overdue):
            probe = self._messages.make("kernel_info_request", {})  # what it publishes comes after all that was published before
            self._probe = str(loads(probe[0])["msg_id"]), overdue
            self._send("shell", probe)

    def published(self, msg_id: str) -> None:
        """The kernel has published something of one of the supervisor's own requests."""
        if self._probe and msg_id == self._probe[0]:
            for reply in self._idle.give_up(self._probe[1]):
                log.warning("the idle of a cell was lost; told in the kernel's place")
                self._close(reply)

    def forget(self) -> None:
        """The kernel has ended."""
        self._probe = None
