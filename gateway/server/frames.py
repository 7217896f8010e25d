"""Writes websocket frames to one browser: what is said in one turn of the loop leaves in one system call.

tornado makes a task and a system call of each message, which is most of the cost of a small one. This must never wait,
and never hold more than the credit that the supervisor gives one browser.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

TEXT, BINARY, PING = 0x1, 0x2, 0x9

_JOINED = 64 << 10  # frames up to this size are copied together; larger ones go by themselves


def head(opcode: int, length: int) -> bytes:
    """The header of an unmasked, final frame (RFC 6455, section 5.2)."""
    if length < 126:
        return struct.pack("!BB", 0x80 | opcode, length)
    if length < 1 << 16:
        return struct.pack("!BBH", 0x80 | opcode, 126, length)
    return struct.pack("!BBQ", 0x80 | opcode, 127, length)


class FrameWriter:
    """``last_words()`` is called before each flush and may send what only the newest state matters of: acknowledgements."""

    def __init__(self, handler: WebSocketHandler, last_words: Callable[[], None], compressed: bool = False) -> None:
        self._handler = handler
        self._last_words = last_words
        self._compressed = compressed  # then tornado has to write, as it holds the compressor
        self._frames: list[tuple[int, bytes]] = []
        self._scheduled = False

    def send(self, opcode: int, payload: bytes) -> None:
        self._frames.append((opcode, payload))
        self.wake()

    def wake(self) -> None:
        """See to it that ``last_words`` gets its turn."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._scheduled = False
        connection = self._handler.ws_connection
        if connection is None or connection.is_closing():
            self._frames.clear()
            return
        self._scheduled = True  # what last_words sends leaves with this flush
        self._last_words()
        self._scheduled = False
        frames, self._frames = self._frames, []
        try:
            if self._compressed:
                self._write_through(frames)
                return
            small: list[bytes] = []
            for opcode, payload in frames:
                small.append(head(opcode, len(payload)))
                if len(payload) <= _JOINED:
                    small.append(payload)
                else:
                    connection.stream.write(b"".join(small))
                    connection.stream.write(payload)
                    small = []
            if small:
                connection.stream.write(b"".join(small))
        except (StreamClosedError, WebSocketClosedError):
            pass  # tornado tells the handler

    def _write_through(self, frames: list[tuple[int, bytes]]) -> None:
        for opcode, payload in frames:
            if opcode == PING:
                self._handler.ping(payload)
            else:
                self._handler.write_message(payload, binary=opcode == BINARY)
