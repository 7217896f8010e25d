"""What stands between a browser and the gateway in the user's Lab server, in place of jupyter_server's own connection class.

This is the browser's end of a ``Line``: it speaks ``V1`` or legacy as the browser wishes, and finds out what the browser has by
websocket pings. It must never hold messages (the line does), and never let a bad frame end a connection.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.services.kernels.connection.base import BaseKernelWebsocketConnection
from jupyter_server.services.kernels.websocket import KernelWebsocketHandler
from jupyter_server.utils import url_escape, url_path_join
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect
from traitlets import Float, Int

from ..protocol.errors import WireError
from ..protocol.websocket import ELASTIC, V1, decode_legacy, decode_v1, encode_legacy, encode_v1
from ..protocol.wire import Part
from .line import Line, Patience

MAX_MESSAGE_BYTES = 512 << 20  # of one message, either way; tornado's own limit of 10 MiB cuts off large pictures and widgets

ASK_EVERY = 16  # messages; a page whose network breaks is sent again what it has not confirmed, so about so many at most

_NUMBER = struct.Struct("!Q")


class ElasticGatewayConnection(BaseKernelWebsocketConnection):
    """One browser page's websocket to one kernel. Its line outlives it, so that a page that comes back goes on where it was."""

    retry_first = Float(0.1, config=True, help="Seconds before the gateway is dialled again for the first time.")
    retry_max = Float(
        3.0,
        config=True,
        help="Seconds between two dials at most. Waits double up to it, and vary, so that a gateway that comes back isn't run over.",
    )
    connect_timeout = Float(10.0, config=True, help="Seconds that one dial may take.")
    notice_after = Float(
        2.0,
        config=True,
        help="Seconds of the gateway's absence after which the page shows the kernel as starting. Shorter ones don't show.",
    )
    gone_after = Float(
        3.0,
        config=True,
        help="Seconds for which the gateway must answer that it doesn't know the kernel before the page is told that it is dead. "
        "0: the first such answer is believed; some proxies give it while a gateway starts.",
    )
    keep = Float(3600.0, config=True, help="Seconds for which the place of a page that has left is kept.")
    outbox_bytes = Int(
        128 << 20,
        config=True,
        help="Bytes of requests kept for a gateway that is away, for each page. Beyond it cells end with an error. One always passes.",
    )

    lines: ClassVar[dict[tuple[str, str], Line]] = {}

    _line: Line | None = None
    _written = 0  # number of the last message written
    _asked = 0  # number in the last ping
    _answered = 0  # number in the last pong

    # What the websocket handler says

    async def connect(self) -> None:
        """The browser is here."""
        self.websocket_handler.set_nodelay(True)  # else small messages wait 40 ms for each other's acknowledgement
        key = self.kernel_id, self.session_id
        self._line = self.lines.get(key)
        if self._line is None:
            patience = Patience(
                self.retry_first, self.retry_max, self.notice_after, self.gone_after, keep=self.keep, outbox_bytes=self.outbox_bytes
            )
            self._line = self.lines[key] = Line(self._dialler(*key), patience, self.log, lambda line: self.lines.pop(key, None))
        self._line.open(self)

    def disconnect(self) -> None:  # type: ignore[override]
        if self._line is not None:
            self._line.leave(self, self.websocket_handler.close_code)

    def handle_incoming_message(self, incoming_msg: str | bytes) -> None:
        """From the browser."""
        try:
            if self._speaks_v1:
                channel, parts = decode_v1(incoming_msg if isinstance(incoming_msg, bytes) else incoming_msg.encode())
            else:
                channel, parts = decode_legacy(incoming_msg)
        except WireError as exc:
            self.log.warning("Dropped a message of the browser that can't be read: %s", exc)
            return
        if self._line is not None:
            self._line.send(channel, list(parts))

    def handle_pong(self, data: bytes) -> None:
        """The browser has read everything up to the number in ``data``."""
        n = _NUMBER.unpack(data)[0] if len(data) == _NUMBER.size else 0
        if self._line is not None and self._answered < n <= self._asked:
            self._answered = n
            self._line.taken(n)
            self._ask()

    @classmethod
    async def close_all(cls) -> None:
        """The Lab server stops."""
        for line in list(cls.lines.values()):
            line.end()

    # What the line says (Page)

    def deliver(self, n: int | None, channel: str, parts: Sequence[Part]) -> Awaitable[None] | None:
        frame = encode_v1(channel, parts) if self._speaks_v1 else encode_legacy(channel, parts)
        try:
            writing = self.websocket_handler.write_message(frame, binary=isinstance(frame, bytes))
        except WebSocketClosedError:
            return None  # the handler will say so
        writing.add_done_callback(_closed_is_fine)
        if n is not None:
            self._written = n
            self._ask()
        return writing

    def close(self, code: int, reason: str) -> None:
        self.websocket_handler.close(code, reason)

    # Inside

    @property
    def _speaks_v1(self) -> bool:
        return self.websocket_handler.selected_subprotocol == V1

    def _ask(self) -> None:
        """Ask how far the browser has read: at once where no question is open, else once in a while."""
        open_question = self._asked > self._answered
        if self._written >= self._asked + (ASK_EVERY if open_question else 1):
            self._asked = self._written
            try:
                self.websocket_handler.ping(_NUMBER.pack(self._asked))
            except WebSocketClosedError:
                pass

    def _dialler(self, kernel_id: str, session_id: str) -> Any:
        """Opens the gateway's websocket of this kernel; it holds no page, because the line outlives each."""
        timeout = self.connect_timeout

        async def dial(after: int | None) -> WebSocketClientConnection:
            client = GatewayClient.instance()
            query = {"session_id": session_id} | ({} if after is None else {"after": str(after)})
            url = url_path_join(websocket_url(client), client.kernels_endpoint, url_escape(kernel_id), "channels")
            limits = {"connect_timeout": timeout, "request_timeout": timeout}
            request = HTTPRequest(f"{url}?{urlencode(query)}", **(client.load_connection_args() | limits))
            dialling = websocket_connect(request, subprotocols=[ELASTIC, V1], max_message_size=MAX_MESSAGE_BYTES, ping_interval=30)
            try:
                ws = await asyncio.shield(dialling)
            except asyncio.CancelledError:
                dialling.add_done_callback(_hang_up)
                raise
            assert ws.protocol is not None
            ws.protocol.set_nodelay(True)
            return ws

        return dial


class ChannelsHandler(KernelWebsocketHandler):
    """jupyter_server's handler, which also passes on pongs and lets large messages through."""

    connection: ElasticGatewayConnection | None = None
    max_message_size = MAX_MESSAGE_BYTES

    def on_pong(self, data: bytes) -> None:
        super().on_pong(data)
        if self.connection is not None:
            self.connection.handle_pong(data)


def websocket_url(client: GatewayClient) -> str:
    """``GatewayClient.ws_url``; where that is only its default, which lower-cases whole paths, it is derived anew."""
    url, ws_url = client.url or "", client.ws_url or ""
    return f"ws{url[4:]}" if ws_url == url.lower().replace("http", "ws") else ws_url


def _closed_is_fine(writing: asyncio.Future[None]) -> None:
    if not writing.cancelled():
        writing.exception()


def _hang_up(dialling: asyncio.Future[WebSocketClientConnection]) -> None:
    if not dialling.cancelled() and dialling.exception() is None:
        dialling.result().close()
