"""One browser's websocket on one side, the line to the kernel's supervisor on the other.

It must never look into a message further than it has to, never hold output (the supervisor does), and never let one bad frame or
one slow reader touch another browser.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_server.services.kernels.connection.base import BaseKernelWebsocketConnection

from ..protocol import websocket as ws
from ..protocol.errors import RequestError, WireError
from ..protocol.wire import Part, dumps, loads
from .frames import BINARY, PING, TEXT, FrameWriter
from .messages import Said, failure, message, spoken_as, status

if TYPE_CHECKING:
    from ..broker.link import KernelLink

EARLY_BYTES = 64 << 20  # what one browser may send before its kernel has come up
GOING_AWAY = 1001  # websocket close code of a page that is left
TRY_AGAIN = 1013  # websocket close code: come back later

_MARK = struct.Struct("!IQ")  # in our pings: which attachment, up to which number


class ElasticWebsocketConnection(BaseKernelWebsocketConnection):
    """A subscriber of ``KernelLink``. The kernel manager tells it when the line is there, and when the kernel has gone for good.

    A client of ``ELASTIC`` acknowledges by itself. For stock clients the gateway does, by a ping that carries the number of the last
    message written: its pong says that the client's websocket has read so far.
    """

    session_id = ""  # of the client; the base class makes a whole signing Session to hold it

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.protocol: str | None = None
        self.after: int | None = None
        self.named = True  # it has a session_id of its own, so it may come back
        self.link: KernelLink | None = None
        self.over = False
        self._encode: Callable[[int, str, Sequence[Part]], tuple[int, bytes]] = _legacy
        self._early: list[tuple[str, list[Part], int | None]] = []
        self._early_bytes = 0
        self._why = ""
        self._asked: dict[str, tuple[str, Part]] = {}  # requests without an answer: channel and header
        self._attachment = 0
        self._written = self._acked = 0
        self._pinged = False
        self._taken = 0
        self._complained = 0.0
        self._writer: FrameWriter

    # what the websocket handler says

    def open(self) -> None:
        """The handshake is done; the kernel may still be starting, or be dead."""
        handler = self.websocket_handler
        self.protocol = handler.selected_subprotocol
        self._encode = {ws.ELASTIC: _numbered, ws.V1: _v1}.get(self.protocol or "", _legacy)
        self._writer = FrameWriter(handler, self._last_words, handler.get_compression_options() is not None)
        self.kernel_manager.joined(self)

    async def connect(self) -> None:
        self.open()

    def disconnect(self) -> None:  # type: ignore[override]
        """The browser has gone; its place is kept by the supervisor if it can name it again."""
        if self.over:
            return
        self.over = True
        left = self.websocket_handler.close_code == GOING_AWAY  # a page that was closed or loaded anew never comes back as itself
        if self.link is not None:
            self.link.detach(self.session_id, forget=left or not self.named, subscriber=self)
            self.link = None
        elif self._early:  # what was sent is run, whoever is there to see it
            self.kernel_manager.keep(self.session_id, self._early, forget=left or not self.named)
        self.kernel_manager.left(self)

    def handle_incoming_message(self, incoming_msg: str | bytes) -> None:
        try:
            channel, parts, m = self._decode(incoming_msg)
            if channel is None:
                return
            header = ws.check_request(channel, parts)
        except WireError as exc:
            self._complain(f"dropped a malformed message: {exc}")
            if isinstance(exc, RequestError):
                self._refuse(exc)
            return
        allowed = self.multi_kernel_manager.allowed_message_types
        if allowed and header["msg_type"] not in allowed:
            self._complain(f"dropped a {header['msg_type'][:40]!r}: this server's allowed_message_types leave it out")
            return
        if header["msg_type"].endswith("_request"):
            self._asked[header["msg_id"]] = channel, bytes(parts[0])
        if self.kernel_manager.dead:
            if m is not None:
                self.taken(m)
            self._fail_asked(*self.kernel_manager.obituary)
        elif self.link is not None:
            self.link.send(self.session_id, channel, parts, m)
        else:
            self._keep(channel, parts, m)

    def pong(self, data: bytes) -> None:
        """The client's websocket has read everything up to the number in ``data``."""
        if len(data) != _MARK.size:
            return
        attachment, number = _MARK.unpack(data)
        if attachment != self._attachment:
            return
        self._pinged = False
        self._acked = number
        if self.link is not None:
            self.link.ack(self.session_id, number)
        if self._written > number:
            self._writer.wake()

    # what the kernel manager says

    def attach(self, link: KernelLink) -> None:
        """The line to the supervisor is there (again); what came early is sent first."""
        self.link = link
        self._attachment += 1
        self._written = self._acked = self._taken = 0
        self._pinged = False
        link.attach(self.session_id, self, after=self.after)
        early, self._early, self._early_bytes = self._early, [], 0
        for channel, parts, m in early:
            if m is None:  # a client that numbers sends everything again once it hears ATTACHED
                link.send(self.session_id, channel, parts)

    def wait(self) -> None:
        """The kernel is still coming up: the client may send already."""
        self.link, self.after = None, None
        self._invite()
        self.say(status("starting"))

    def say(self, *said: Said) -> None:
        """What the gateway itself has to say: number 0, never acknowledged, never repeated."""
        for channel, parts in said:
            self._writer.send(*self._encode(0, channel, spoken_as(parts, self.kernel_manager.spoken)))

    def explain(self, why: str) -> None:
        """What keeps the kernel from coming up, or from answering: shown in the cells that wait for it. "": nothing does."""
        self._why = why
        for _, header in self._asked.values():
            self._show_why(header)

    def _show_why(self, header: Part) -> None:
        if self._why and loads(header)["msg_type"] == "execute_request":
            self.say(("iopub", message("stream", {"name": "stderr", "text": self._why + "\n"}, header)))

    def cancel_early(self, ename: str, evalue: str) -> None:
        """End the cells that wait for the kernel to come up; other requests go on waiting."""
        kept = []
        for channel, parts, m in self._early:
            header = ws.check_request(channel, parts)
            if header["msg_type"] == "execute_request":
                self._asked.pop(header["msg_id"], None)
                self.say(*failure(parts[0], channel, ename, evalue))
            else:
                kept.append((channel, parts, m))
        self._early = kept

    def fail(self, ename: str, evalue: str) -> None:
        """The kernel can't answer any more: close every open request with the reason, and say that it is dead."""
        for _, _, m in self._early:
            if m is not None:
                self.taken(m)
        self._early, self._early_bytes = [], 0
        self._invite()
        self._fail_asked(ename, evalue)
        self.say(status("dead"))

    def end(self, code: int, reason: str, dead: bool = False) -> None:
        """Close the websocket. ``dead``: the kernel is gone for good, and the front end is told first."""
        if self.over:
            return
        if dead:
            self.say(status("dead"))
        self._writer.flush()
        self.disconnect()
        self.websocket_handler.close(code, reason)

    # what the link says (Subscriber)

    def attached(self, n: int, lost: int, seen: int) -> None:
        self._written = self._acked = n
        if self.protocol == ws.ELASTIC:
            self._writer.send(BINARY, ws.encode_attached(n, lost, seen))
        self.kernel_manager.greet(self)

    def deliver(self, n: int, channel: str, parts: Sequence[Part]) -> None:
        self._written = n
        if channel in ("shell", "control") and self._asked:
            self._answered(parts)
        self._writer.send(*self._encode(n, channel, parts))

    def taken(self, m: int) -> None:
        self._taken = m
        self._writer.wake()

    def cut(self, reason: str) -> None:
        if reason == "slow_reader":
            self.log.warning("Kernel %s: a browser stopped reading and was cut; it catches up when it comes back.", self.kernel_id)
            self.end(ws.CLOSE_SLOW_READER, reason)
        elif reason == "replaced":
            self.link = None
            self.end(1000, "this session has a newer connection")
        else:  # the line broke; the kernel manager attaches us again once it is mended
            self.link, self.after = None, None

    def lost(self, reason: str) -> None:
        """The supervisor is gone. The kernel manager hears of it too, and decides what follows."""
        self.link, self.after = None, None

    # inside

    def _decode(self, frame: str | bytes) -> tuple[str | None, list[Part], int | None]:
        """``(None, [], None)`` for what is no message."""
        if self.protocol == ws.ELASTIC:
            if isinstance(frame, str):
                raise WireError("a text frame")
            kind, numbers, body = ws.decode_elastic(frame)
            if kind == ws.ACK:
                if self.link is not None:
                    self.link.ack(self.session_id, numbers[0])
                return None, [], None
            if body is None:
                raise WireError("a frame that only a gateway sends")
            return *ws.decode_v1(body), numbers[0]  # type: ignore[return-value]
        if self.protocol == ws.V1 and not isinstance(frame, str):
            return *ws.decode_v1(frame), None  # type: ignore[return-value]
        if self.protocol == ws.V1:
            raise WireError("a text frame")
        return *ws.decode_legacy(frame), None

    def _refuse(self, exc: RequestError) -> None:
        """Its sender alone is told; not where that would end another request, which has the same id."""
        if exc.header["msg_id"] not in self._asked:
            self.say(*failure(dumps(exc.header), exc.channel, "BadRequest", f"This request can't be read and was not run: {exc}."))
            if self.link is not None:  # the newest status is what front ends show, and that was the idle of this one
                self.kernel_manager.greet(self)

    def _last_words(self) -> None:
        """Before each write: acknowledge what was received, and ask how far the client has read."""
        if self.protocol == ws.ELASTIC:
            if self._taken:
                self._writer.send(BINARY, ws.encode_ack(self._taken))
                self._taken = 0
        elif self._written > self._acked and not self._pinged:
            self._pinged = True
            self._writer.send(PING, _MARK.pack(self._attachment, self._written))

    def _invite(self) -> None:
        """A client that numbers sends nothing before it is attached, and has to hear why its cells can't run."""
        if self.protocol == ws.ELASTIC:
            self._writer.send(BINARY, ws.encode_attached(0, 0, 0))

    def _keep(self, channel: str, parts: list[Part], m: int | None) -> None:
        self._early.append((channel, parts, m))
        self._early_bytes += sum(map(len, parts))
        self._show_why(parts[0])
        if self._early_bytes > EARLY_BYTES:
            self._early = []
            self.end(TRY_AGAIN, "too much was sent before the kernel had started")

    def _answered(self, parts: Sequence[Part]) -> None:
        try:
            self._asked.pop(loads(parts[1]).get("msg_id", ""), None)
        except (WireError, TypeError):
            pass

    def _fail_asked(self, ename: str, evalue: str) -> None:
        asked, self._asked = self._asked, {}
        for channel, header in asked.values():
            self.say(*failure(header, channel, ename, evalue))

    def _complain(self, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._complained > 10 or not self._complained:
            self._complained = now
            self.log.warning("Kernel %s: %s.", self.kernel_id, text)


def _legacy(n: int, channel: str, parts: Sequence[Part]) -> tuple[int, bytes]:
    frame = ws.encode_legacy(channel, parts)
    return (TEXT, frame.encode()) if isinstance(frame, str) else (BINARY, frame)


def _v1(n: int, channel: str, parts: Sequence[Part]) -> tuple[int, bytes]:
    return BINARY, ws.encode_v1(channel, _readable(parts))


def _numbered(n: int, channel: str, parts: Sequence[Part]) -> tuple[int, bytes]:
    return BINARY, ws.encode_message(n, channel, _readable(parts))


def _readable(parts: Sequence[Part]) -> Sequence[Part]:
    """A lone surrogate that a cell has printed makes a content that isn't UTF-8, on which clients break; U+FFFD takes its place."""
    try:
        str(parts[3], "utf-8")
    except UnicodeDecodeError:
        return [*parts[:3], str(parts[3], "utf-8", "replace").encode(), *parts[4:]]
    return parts
