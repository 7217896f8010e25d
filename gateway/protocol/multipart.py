"""Multipart messages of ZMQ sockets, sent and taken part by part: pyzmq's own ways take several times as long, for each message of each
cell. It must never leave a message half sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .wire import Part

NOW, MORE = 1, 2  # ZMQ_DONTWAIT and ZMQ_SNDMORE of libzmq's interface: pyzmq's names are enums, and an `|` of two takes microseconds


def send(socket: Any, parts: Sequence[Part], flags: int = 0) -> None:
    """``parts``: bytes or memoryviews, one at least. Raises ``zmq.Again`` with ``NOW`` where it can't be sent at once; then no part is."""
    for part in parts[:-1]:
        socket.send(part, flags | MORE)
    socket.send(parts[-1], flags)


def take(socket: Any) -> list[bytes]:
    """The parts of the next message. Raises ``zmq.Again`` where there is none."""
    frame = socket.recv(NOW, copy=False)
    parts = [frame.bytes]
    while frame.more:
        frame = socket.recv(NOW, copy=False)
        parts.append(frame.bytes)
    return parts
