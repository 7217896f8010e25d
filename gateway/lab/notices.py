"""Messages that the Lab server itself sends to a page: the kernel's status while the gateway is away, and refusals.

They carry the kernel's own session id: JupyterLab drops what it is still handling when that id changes. This module must
never send anything, and never speak in the kernel's name about results.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from ..protocol.errors import WireError
from ..protocol.wire import Part, dumps, loads

AWAY = "starting"  # JupyterLab throws away a status that isn't starting, idle, busy, restarting or dead; of these it is the nearest

Message = tuple[str, list[Part]]  # channel, [header, parent_header, metadata, content, *buffers]


class Voice:
    """Speaks to one page as its kernel does: knows the kernel's session id and the status it was last seen in."""

    def __init__(self) -> None:
        self.kernel_session = uuid.uuid4().hex
        self.execution_state = AWAY

    def listen(self, channel: str, parts: Sequence[Part]) -> None:
        """Learn from a message on its way to the page; anything but a status is left unread."""
        if channel != "iopub" or b'"status"' not in bytes(parts[0]):
            return
        try:
            header, content = loads(parts[0]), loads(parts[3])
        except WireError:
            return
        if header.get("msg_type") == "status":
            self.kernel_session = header.get("session") or self.kernel_session
            self.execution_state = content.get("execution_state") or self.execution_state

    def status(self, execution_state: str, parent: Part = b"{}") -> Message:
        return "iopub", self._message("status", {"execution_state": execution_state}, parent)

    def refusal(self, parts: Sequence[Part], message: str) -> Iterator[Message]:
        """What ends a cell that was never sent to its kernel; nothing for any other request."""
        parent = parts[0]
        if loads(parent).get("msg_type") != "execute_request":
            return
        error = {"ename": "GatewayAway", "evalue": message, "traceback": [f"GatewayAway: {message}"]}
        yield self.status("busy", parent)
        yield "iopub", self._message("error", error, parent)
        yield "shell", self._message("execute_reply", {"status": "error", "execution_count": 0, **error}, parent)
        yield self.status("idle", parent)

    def _message(self, msg_type: str, content: dict[str, Any], parent: Part) -> list[Part]:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": msg_type,
            "session": self.kernel_session,
            "username": "",
            "date": datetime.now(UTC).isoformat(),
            "version": "5.3",
        }
        return [dumps(header), parent, b"{}", dumps(content)]
