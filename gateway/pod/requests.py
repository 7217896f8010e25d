"""What a client has asked for, read from its message and checked before anything is done about it.

Pure. It must never let through what would upset the accounts: a cell without code, or a request under a message id that is taken.
"""

from __future__ import annotations

from typing import Optional

from ..protocol.errors import WireError
from ..protocol.wire import Part, loads
from .gate import CONTROL, Gate, Request

REPEATED = "RepeatedRequest"
MOST = 1 << 13  # requests that are remembered

_TAKEN = "A request with this msg_id is still to be answered, so this one was not taken: each request needs a msg_id of its own."
_ANSWERED = "This very request was answered before, and runs once only: send it under a msg_id of its own."


def read(channel: str, envelope: list[Part], parts: list[Part], own: str) -> Request:
    """``own``: what ids of the supervisor's own messages begin with. Raises ``WireError``."""
    header = loads(parts[0])
    msg_type, msg_id = header.get("msg_type"), header.get("msg_id")
    if not isinstance(msg_type, str) or not isinstance(msg_id, str) or not msg_id or msg_id.startswith(own):
        raise WireError("a request needs a msg_type and a msg_id that are text")
    request = Request(envelope, parts, msg_id, msg_type)
    subshell = header.get("subshell_id")
    request.lane = CONTROL if channel == CONTROL else subshell if isinstance(subshell, str) else ""
    return request


def read_cell(request: Request) -> str:
    """Fill in what is to be run; returns "" or what is wrong with it, for people."""
    try:
        content, metadata = loads(request.parts[3]), loads(request.parts[2])
    except WireError as exc:
        return f"The content and the metadata of an execute_request must be objects: {exc}."
    if not isinstance(content.get("code"), str):
        return "An execute_request needs a content with code that is text."
    expressions = content.get("user_expressions") or {}
    if not isinstance(expressions, dict):
        return "The user_expressions of an execute_request must be an object of names and code."
    request.expressions = tuple(each for each in expressions.values() if isinstance(each, str))
    request.code, request.metadata = content["code"], metadata
    return ""


class Repeats:
    """Kernels drop what comes a second time, byte for byte, and say nothing; and answers go by message id alone."""

    def __init__(self, gate: Gate, most: int = MOST) -> None:
        self._gate, self._most = gate, most
        self._seen: dict[int, None] = {}  # hashes, the oldest first

    def refuse(self, request: Request) -> Optional[str]:
        """Why it can't be taken, for people; None: it can. "": it is sent again by the same client while the first is under way, whose
        answer is the answer to both."""
        mark = hash(tuple(map(bytes, request.parts[:4])))
        first = self._gate.under_way(request.msg_id)
        if first is not None:
            return "" if mark in self._seen and first.source == request.source else _TAKEN
        if mark in self._seen:
            return _ANSWERED
        self._seen[mark] = None
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]
        return None
