"""What goes out: to the client that has asked, to everybody on iopub; in the kernel's own words, or in its place.

It must never say ``idle`` twice of one request, nor leave a front end with ``idle`` while a cell runs or waits.
"""

from __future__ import annotations

from typing import Any

from ..protocol.wire import Part
from .front import PLAIN, Front
from .gate import CELL, CONTROL, Gate, Request
from .link import LINKED, Link
from .messages import Messages, error_content


class Answers:
    """Over ``front`` to plain clients, over ``link`` to browsers."""

    def __init__(self, front: Front, link: Link, messages: Messages, gate: Gate) -> None:
        self._front, self._link, self._messages, self._gate = front, link, messages, gate
        self.info: dict[str, Any] = {}  # what the kernel says it is

    def route(self, channel: str, envelope: list[Part], parts: list[Part], msg_type: str = "reply") -> None:
        """To the client that ``envelope`` names."""
        if envelope[:1] == [PLAIN]:
            self._front.answer(channel, envelope, parts)
        elif envelope[:1] == [LINKED]:
            self._link.publish(channel, parts, msg_type, to=bytes(envelope[1]).decode())

    def publish(self, parts: list[Part], msg_type: str, once: bool = False) -> None:
        """A message of our own, on iopub to everybody."""
        self._front.publish(parts, topic=msg_type.encode())
        self._link.publish("iopub", parts, msg_type, once=once)

    def relay(self, parts: list[Part], frames: list[bytes], msg_type: str) -> None:
        """The kernel's own, on iopub to everybody; ``frames``: as it has signed it."""
        self._front.publish(parts, wrapped=frames)
        for piece in self._messages.pieces(parts) if msg_type == "stream" else [parts]:
            self._link.publish("iopub", piece, msg_type)

    def reply(self, request: Request, content: dict[str, Any]) -> None:
        """In the kernel's place."""
        if request.msg_type == CELL:
            content = {"execution_count": None, "payload": [], "user_expressions": {}, **content}
        self.route(channel(request), request.source, self._messages.reply(request.msg_type, request.parts[0], content))

    def fail(self, request: Request, ename: str, evalue: str) -> None:
        """End it with an error, as the kernel would."""
        if request.msg_type == CELL:
            self.publish(self._messages.error(request.parts[0], ename, evalue), "error")
        self.refuse(request, ename, evalue)
        self.idle(request)

    def refuse(self, request: Request, ename: str, evalue: str) -> None:
        """An error for its sender alone."""
        self.reply(request, {"status": "error", **error_content(ename, evalue)})

    def inform(self, request: Request) -> None:
        """What kernel it is."""
        self.publish(self._messages.status("busy", request.parts[0]), "status")
        self.reply(request, self.info)
        self.idle(request)

    def abort(self, request: Request) -> None:
        """It never ran, because of what happened to one before it."""
        self.reply(request, {"status": "aborted"})
        self.idle(request)

    def idle(self, request: Request) -> None:
        """Unless the kernel has said it."""
        if not request.through:
            self.publish(self._messages.status("idle", request.parts[0]), "status")
            self.still_busy(self._gate.cell)

    def still_busy(self, cell: Request | None) -> None:
        """After an idle: front ends show the newest status."""
        if cell is not None:
            self.publish(self._messages.status("busy", cell.parts[0]), "status")


def channel(request: Request) -> str:
    """Where it came from, and its answer goes."""
    return CONTROL if request.lane == CONTROL else "shell"
