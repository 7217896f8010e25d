"""A line for a notebook in which nothing runs: it stands below the cell that ran last, where JupyterLab still takes output.

It must never say anything while nobody has told it to, nor leave more than one line.
"""

from __future__ import annotations

import uuid
from typing import Callable, Optional

from ..protocol.wire import Part
from .gate import CELL, Request
from .messages import Messages


class Notice:
    """``publish(parts, msg_type)`` sends on iopub to everybody."""

    def __init__(self, messages: Messages, publish: Callable[[list[Part], str], None]) -> None:
        self._messages, self._publish = messages, publish
        self._last: Optional[Part] = None  # header of the newest cell
        self._shown: Optional[tuple[Part, str]] = None  # where the line stands, and its display id

    def follow(self, request: Request) -> None:
        """It goes to the kernel."""
        if request.msg_type == CELL:
            self._last = request.parts[0]

    def say(self, text: str, last: bool) -> bool:
        """Show ``text``, in place of the line before; ``last``: the next one is another line. False where no cell has run yet."""
        update = self._shown is not None
        if self._shown is None and self._last is not None:
            self._shown = self._last, uuid.uuid4().hex
        if self._shown is None:
            return False
        parent, display = self._shown
        self._publish(self._messages.notice(parent, display, text, update=update), "update_display_data" if update else "display_data")
        if last:
            self._shown = None
        return True
