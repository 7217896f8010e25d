"""Jupyter messages that the supervisor itself sends in the kernel's name: status, errors, replies for cells that never ran.

It must never send ``idle`` for a request that the kernel will still answer.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from typing import Any, Optional

from ..protocol.wire import Part, dumps, loads

PIECE = 1 << 20  # characters of one stream message to a browser


class Messages:
    """Makes messages as ``[header, parent, metadata, content]``.

    ``session`` is to be the kernel's own: JupyterLab skips what it is still handling whenever that id changes.
    """

    def __init__(self) -> None:
        self.session = uuid.uuid4().hex
        self._count = 0
        self.prefix = uuid.uuid4().hex + "_"  # of every msg_id made here: how replies to own requests are known

    def make(
        self, msg_type: str, content: dict[str, Any], parent: Optional[Part] = None, metadata: Optional[dict[str, Any]] = None,
        subshell: str = "",
    ) -> list[Part]:  # fmt: skip
        """``parent`` is the raw header of the request that this belongs to, ``subshell`` the one that is to take it."""
        self._count += 1
        header = {
            "msg_id": f"{self.prefix}{self._count}",
            "msg_type": msg_type,
            "username": "elastic",
            "session": self.session,
            "date": datetime.now(timezone.utc).isoformat().replace("+00:00", "Z"),
            "version": "5.4",
        }
        if subshell:
            header["subshell_id"] = subshell
        return [dumps(header), parent or b"{}", dumps(metadata or {}), dumps(content)]

    def status(self, state: str, parent: Optional[Part] = None) -> list[Part]:
        return self.make("status", {"execution_state": state}, parent)

    def error(self, parent: Part, ename: str, evalue: str) -> list[Part]:
        return self.make("error", error_content(ename, evalue), parent)

    def reply(self, msg_type: str, parent: Part, content: dict[str, Any]) -> list[Part]:
        return self.make(msg_type.replace("_request", "_reply"), content, parent, {"status": content["status"]})

    def notice(self, parent: Part, display_id: str, text: str, update: bool) -> list[Part]:
        """A line under a cell that later ones replace."""
        content = {
            "data": {"text/plain": text, "text/html": f'<div style="opacity:.65;font-style:italic">{_html(text)}</div>'},
            "metadata": {},
            "transient": {"display_id": display_id},
        }
        return self.make("update_display_data" if update else "display_data", content, parent)

    def pieces(self, stream: list[Part]) -> list[list[Part]]:
        """A stream message as several of at most ``PIECE`` characters, so that a browser can take them one by one; most are one."""
        if len(stream[3]) <= PIECE:
            return [stream]
        content = loads(stream[3])
        text = content["text"]
        return [self.make("stream", {**content, "text": text[at : at + PIECE]}, stream[1]) for at in range(0, len(text), PIECE)]

    def stderr(self, parent: Part, text: str) -> list[Part]:
        return self.make("stream", {"name": "stderr", "text": text}, parent)


def error_content(ename: str, evalue: str) -> dict[str, Any]:
    return {"ename": ename, "evalue": evalue, "traceback": [f"\x1b[0;31m{ename}\x1b[0m: {evalue}"]}


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def seconds(value: float) -> str:
    """A duration as people say it."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def size(value: float) -> str:
    """Bytes as people say them."""
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
