"""Stand-ins for what a websocket connection stands between: a browser's socket, a kernel, the line to a supervisor."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from traitlets.config import Configurable

from gateway.protocol import websocket as ws
from gateway.protocol.wire import dumps


def request(msg_type: str = "execute_request", msg_id: str = "m1", **content: Any) -> list[bytes]:
    return [dumps({"msg_id": msg_id, "msg_type": msg_type}), b"{}", b"{}", dumps(content or {"code": "1"})]


def reply(msg_id: str = "m1", msg_type: str = "execute_reply", **content: Any) -> list[bytes]:
    return [dumps({"msg_id": f"r-{msg_id}", "msg_type": msg_type}), dumps({"msg_id": msg_id}), b"{}", dumps(content or {"status": "ok"})]


class Stream:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


class Socket:
    """What a tornado handler is to a connection; ``frames()`` takes apart what was written."""

    def __init__(self, protocol: str | None) -> None:
        self.close_code: int | None = None
        self.selected_subprotocol = protocol
        self.ws_connection: Any = self
        self.stream = Stream()
        self.closed: tuple[int, str] | None = None

    def is_closing(self) -> bool:
        return self.closed is not None

    def get_compression_options(self) -> None:
        return None

    def close(self, code: int, reason: str) -> None:
        self.closed = code, reason

    def frames(self) -> list[tuple[int, bytes]]:
        data, found = b"".join(self.stream.written), []
        while data:
            opcode, length, at = data[0] & 0x0F, data[1], 2
            if length == 126:
                length, at = int.from_bytes(data[2:4], "big"), 4
            elif length == 127:
                length, at = int.from_bytes(data[2:10], "big"), 10
            found.append((opcode, data[at : at + length]))
            data = data[at + length :]
        return found

    def pings(self) -> list[bytes]:
        return [payload for opcode, payload in self.frames() if opcode == 9]

    def numbered(self) -> list[tuple[int, ...]]:
        """Of a client of ours: kind and numbers of each frame."""
        return [(kind, *numbers) for kind, numbers, _ in (ws.decode_elastic(payload) for opcode, payload in self.frames() if opcode == 2)]

    def messages(self) -> list[dict[str, Any]]:
        """The Jupyter messages that were written, whatever the protocol."""
        found = []
        for opcode, payload in self.frames():
            if opcode == 9:
                continue
            if self.selected_subprotocol == ws.ELASTIC:
                kind, _, frame = ws.decode_elastic(payload)
                if kind != ws.MESSAGE:
                    continue
                channel, parts = ws.decode_v1(frame)
            elif self.selected_subprotocol == ws.V1:
                channel, parts = ws.decode_v1(payload)
            else:
                channel, parts = ws.decode_legacy(payload.decode() if opcode == 1 else payload)
            header, parent, _, content, *buffers = map(bytes, parts)
            found.append({"channel": channel, "type": json.loads(header)["msg_type"], "parent": json.loads(parent).get("msg_id"),
                          "content": json.loads(content), "buffers": buffers})  # fmt: skip
        return found


class Link:
    """The line to a supervisor; writes down what it is told."""

    connected = True

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def attach(self, session_id: str, subscriber: Any, after: int | None = None, window: int | None = None) -> None:
        self.told.append(("attach", session_id, after))

    def detach(self, session_id: str, forget: bool = False, subscriber: Any = None) -> None:
        self.told.append(("detach", session_id, forget))

    def ack(self, session_id: str, n: int) -> None:
        self.told.append(("ack", n))

    def send(self, session_id: str, channel: str, parts: list[Any], m: int | None = None) -> None:
        self.told.append(("send", channel, [bytes(part) for part in parts], m))

    def sent(self) -> list[Any]:
        return [each[1:] for each in self.told if each[0] == "send"]


class Mapping(Configurable):
    allowed_message_types: list[str] = []


class Kernel(Configurable):
    """What a connection asks of its kernel manager."""

    def __init__(self, link: Link | None = None, dead: bool = False) -> None:
        super().__init__(parent=Mapping())
        self.kernel_id, self.link = "k1", link
        self.dead, self.spoken = dead, ""
        self.obituary = ("LaunchError", "it has no legs")
        self.gone: list[Any] = []

    def joined(self, websocket: Any) -> None:
        if self.link is not None:
            websocket.attach(self.link)
        elif self.dead:
            websocket.fail(*self.obituary)
        else:
            websocket.wait()

    def greet(self, websocket: Any) -> None:
        pass

    def left(self, websocket: Any) -> None:
        self.gone.append(websocket)


async def turn() -> None:
    """Let what was scheduled for the next turn of the loop happen."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
