"""What the line to a supervisor tells a browser's place on it. Nothing here acts: the server's connections implement it."""

from __future__ import annotations

from typing import Protocol


class Subscriber(Protocol):
    """One browser's place on the line. Each call must be cheap and must not wait; they come in the order of the messages."""

    def attached(self, n: int, lost: int, seen: int) -> None:
        """First of all: numbering goes on after ``n``, ``lost`` messages are gone, the client's own are known up to ``seen``."""

    def deliver(self, n: int, channel: str, parts: list[bytes]) -> None:
        """One message: header, parent_header, metadata, content and buffers."""

    def taken(self, m: int) -> None:
        """The client's own messages have arrived up to number ``m``."""

    def cut(self, reason: str) -> None:
        """The last call: it may attach again at once ("line_broken"), or later ("slow_reader"), or another has its place ("replaced")."""

    def lost(self, reason: str) -> None:
        """The last call: the supervisor is gone, and the kernel with it. ``reason`` is for people."""
