"""Requests that the kernel never answers: a handler that raised sends ``idle`` and no reply, a message that it can't read not even that.

Left alone they would count as executing, and hold a GPU, for ever. It must never close one that the kernel may still answer: either its
``idle`` has come, or the kernel has published nothing of it and runs nothing else; and a later request of the same lane, which the
kernel takes one by one, has been answered.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Callable, Optional

from ..protocol.wire import Part, loads
from .gate import CELL, CONTROL, Effect, Fail, Gate, Request
from .idle import SILENCE, IdleWatch
from .messages import Messages

log = logging.getLogger(__name__)

ENAME = "NoReply"
EVALUE = "The kernel never answered this request, though it is through with it: run it again; the kernel's log says what went wrong."


@dataclass
class _Probe:
    """A question to the kernel, and the requests that it was sent after."""

    msg_id: str
    asked: frozenset[str]
    answered: bool = False
    published: bool = False  # so all that was published before has come


class Unanswered:
    """``send(channel, parts)`` puts a question of our own to the kernel; ``apply`` carries out effects of the gate, and ``changed()`` is
    called after it."""

    def __init__(
        self, gate: Gate, idle: IdleWatch[Any], messages: Messages, send: Callable[[str, list[Part]], None],
        apply: Callable[[list[Effect]], None], changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._gate, self._idle, self._messages = gate, idle, messages
        self._send, self._apply, self._changed = send, apply, changed
        self._probes: dict[str, _Probe] = {}  # by lane
        self._since: dict[str, float] = {}  # by message id: when one that may never be answered was seen first

    def replied(self, request: Optional[Request]) -> None:
        """A request has been answered. Only cells are known to be taken strictly in turn; other replies wait for no idle."""
        if request is not None and request.msg_type == CELL:
            self._give_up([each for each in self._gate.sent_before(request) if each.through])
        elif request is not None:
            self._idle.closed(request.msg_id)

    def probed(self, msg_id: str) -> None:
        """One of the supervisor's own requests has been answered."""
        self._settle(msg_id, answered=True)

    def published(self, msg_id: str) -> None:
        """The kernel has published something of one of the supervisor's own requests."""
        self._settle(msg_id, published=True)

    def look(self, now: float) -> None:
        """Where nobody has sent a later request, send one."""
        suspects = [*self._gate.through(), *self._gate.unheard()]
        self._since = {request.msg_id: self._since.get(request.msg_id, now) for request in suspects}
        overdue: dict[str, set[str]] = {}
        for request in suspects:
            if now - self._since[request.msg_id] >= SILENCE and request.lane not in self._probes:
                overdue.setdefault(request.lane, set()).add(request.msg_id)
        for lane, asked in overdue.items():
            probe = self._messages.make("kernel_info_request", {}, subshell="" if lane == CONTROL else lane)
            self._probes[lane] = _Probe(str(loads(probe[0])["msg_id"]), frozenset(asked))
            self._send(CONTROL if lane == CONTROL else "shell", probe)

    def forget(self) -> None:
        """The kernel has ended, and what it owed with it."""
        self._probes.clear()
        self._since.clear()

    def _settle(self, msg_id: str, answered: bool = False, published: bool = False) -> None:
        for lane, probe in list(self._probes.items()):
            if probe.msg_id == msg_id:
                probe.answered, probe.published = probe.answered or answered, probe.published or published
                left = [each for each in map(self._gate.in_flight.get, probe.asked) if each is not None]
                if probe.answered and (probe.published or all(each.heard for each in left)):
                    del self._probes[lane]
                    self._give_up([each for each in left if each.through or not each.heard])

    def _give_up(self, requests: list[Request]) -> None:
        for request in requests:
            log.warning("the kernel never answered %s %s; told in its place", request.msg_type, request.msg_id)
            self._idle.closed(request.msg_id)
            self._gate.replied(request.msg_id)
            self._apply([Fail(request, ENAME, EVALUE)])
            self._changed()
