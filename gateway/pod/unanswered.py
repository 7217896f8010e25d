"""Requests that the kernel is through with and hasn't answered: a handler that raises sends ``idle`` and no reply.

Left alone they would count as executing, and hold a GPU, for ever. It must never close one that the kernel may still answer: its own
``idle`` has been seen, and a later request of the same lane, which the kernel takes one by one, has been answered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Callable, Optional

from ..protocol.wire import Part, loads
from .gate import CELL, Effect, Fail, Gate, Request
from .idle import SILENCE, IdleWatch
from .messages import Messages

log = logging.getLogger(__name__)

ENAME = "NoReply"
EVALUE = "The kernel never answered this request, though it is through with it: run it again; the kernel's log says what went wrong."


class Unanswered:
    """``send(channel, parts)`` puts a question of our own to the kernel; ``apply`` carries out effects of the gate, and ``changed()`` is
    called after it."""

    def __init__(
        self, gate: Gate, idle: IdleWatch[Any], messages: Messages, send: Callable[[str, list[Part]], None],
        apply: Callable[[list[Effect]], None], changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._gate, self._idle, self._messages = gate, idle, messages
        self._send, self._apply, self._changed = send, apply, changed
        self._probes: dict[str, tuple[str, frozenset[str]]] = {}  # by lane: a question, and the requests that it was sent after

    def replied(self, request: Optional[Request]) -> None:
        """A request has been answered. Only cells are known to be taken strictly in turn; other replies wait for no idle."""
        if request is not None and request.msg_type == CELL:
            self._give_up(each.msg_id for each in self._gate.sent_before(request))
        elif request is not None:
            self._idle.closed(request.msg_id)

    def probed(self, msg_id: str) -> None:
        """One of the supervisor's own requests has been answered."""
        for lane, (probe, asked) in list(self._probes.items()):
            if probe == msg_id:
                del self._probes[lane]
                self._give_up(asked)

    def look(self, now: float) -> None:
        """Where nobody has sent a later request, send one."""
        overdue: dict[str, set[str]] = {}
        for msg_id, at in self._idle.unanswered().items():
            request = self._gate.in_flight.get(msg_id)
            if request is not None and now - at >= SILENCE and request.lane not in self._probes:
                overdue.setdefault(request.lane, set()).add(msg_id)
        for lane, asked in overdue.items():
            probe = self._messages.make("kernel_info_request", {}, subshell="" if lane == "control" else lane)
            self._probes[lane] = str(loads(probe[0])["msg_id"]), frozenset(asked)
            self._send("control" if lane == "control" else "shell", probe)

    def forget(self) -> None:
        """The kernel has ended, and what it owed with it."""
        self._probes.clear()

    def _give_up(self, msg_ids: Iterable[str]) -> None:
        ended = self._idle.unanswered()
        for msg_id in [each for each in msg_ids if each in ended]:
            self._idle.closed(msg_id)
            request = self._gate.replied(msg_id)
            if request is not None:
                log.warning("the kernel never answered %s %s; told in its place", request.msg_type, msg_id)
                self._apply([Fail(request, ENAME, EVALUE)])
                self._changed()
