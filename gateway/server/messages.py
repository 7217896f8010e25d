"""Jupyter messages that the gateway itself has to say: while a kernel starts, when it can't, and when it is gone.

It must never speak for a kernel that can speak: whatever a supervisor can say comes from the supervisor, numbered.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from ..protocol.wire import Part, dumps, loads

_SESSION = uuid.uuid4().hex
VERSION = "5.4"

Said = tuple[str, list[Part]]  # channel, parts


def message(msg_type: str, content: dict[str, Any], parent: Part = b"{}") -> list[Part]:
    """``[header, parent_header, metadata, content]``; ``parent`` is the raw header that this answers."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": msg_type,
        "session": _SESSION,
        "username": "gateway",
        "date": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "version": VERSION,
    }
    return [dumps(header), bytes(parent), b"{}", dumps(content)]


def spoken_as(parts: list[Part], session: str) -> list[Part]:
    """The same message under a kernel's own session id: JupyterLab skips what it is still handling whenever that id changes."""
    return [dumps({**loads(parts[0]), "session": session}), *parts[1:]] if session else parts


def status(state: str, parent: Part = b"{}") -> Said:
    """A kernel's state as front ends show it: starting, restarting, dead, busy, idle (JupyterLab knows no others)."""
    return "iopub", message("status", {"execution_state": state}, parent)


def failure(header: Part, channel: str, ename: str, evalue: str) -> list[Said]:
    """Everything that ends one request with an error: shown (cells only), replied, idle. ``header`` is the request's own.

    ``kernel_info_request`` stays unanswered: clients take any answer to it for a kernel that works.
    """
    msg_type = str(loads(header).get("msg_type", ""))
    if msg_type == "kernel_info_request":
        return []
    content = {"ename": ename, "evalue": evalue, "traceback": [f"{ename}: {evalue}"]}
    said: list[Said] = []
    if msg_type == "execute_request":
        said.append(("iopub", message("error", content, header)))
    if msg_type.endswith("_request"):
        reply = {"status": "error", **content}
        if msg_type == "execute_request":
            reply |= {"execution_count": 0, "payload": [], "user_expressions": {}}
        said.append((channel, message(msg_type.removesuffix("_request") + "_reply", reply, header)))
    said.append(status("idle", header))
    return said
