"""``/api/kernels/<id>/channels``: the handshake of a kernel's websocket, at once, whatever the kernel is doing.

It must never keep a browser waiting for a kernel, and never cost more than a line of text where there is none.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.services.kernels.handlers import _kernel_id_regex
from jupyter_server.services.kernels.websocket import KernelWebsocketHandler
from tornado import web
from tornado.websocket import WebSocketHandler

from ..protocol import websocket as ws
from .answers import JsonErrors, PingsByItself, no_such_kernel
from .connection import ElasticWebsocketConnection

NAMELESS_WAIT = 30.0  # seconds; less than the 40 for which stock clients wait for a handshake
MAX_MESSAGE_BYTES = 512 << 20  # as much as jupyter_server's buffer takes; tornado's 10 MiB cut off large widgets


class ChannelsHandler(JsonErrors, PingsByItself, KernelWebsocketHandler):
    """Chooses the protocol, finds the kernel, and hands the socket to a connection."""

    connection: ElasticWebsocketConnection | None = None

    @property
    def max_message_size(self) -> int:
        return self.settings.get("websocket_max_message_size", MAX_MESSAGE_BYTES)

    @ws_authenticated
    async def get(self, kernel_id: str) -> None:
        if not await ensure_async(self.authorizer.is_authorized(self, self.current_user, "execute", "kernels")):
            raise web.HTTPError(403)
        if kernel_id not in self.kernel_manager:
            # Old tabs ask for ever: an exception, a template and a traceback each time would add up.
            self.set_status(404)
            self.set_header("Content-Type", "application/json")
            self.finish(json.dumps(no_such_kernel().body))
            return
        session_id, after = self.get_query_argument("session_id", ""), self.get_query_argument("after", "")
        if len(session_id) > 256 or (after and not (after.isascii() and after.isdigit() and len(after) < 20)):
            raise web.HTTPError(400, "session_id may have 256 characters; after must be a number")
        connection = self.kernel_websocket_connection_class(
            parent=self.kernel_manager.get_kernel(kernel_id), websocket_handler=self, config=self.config
        )
        connection.session_id, connection.named = session_id or uuid.uuid4().hex, bool(session_id)
        connection.after = int(after) if after else None
        self.kernel_id, self.connection = kernel_id, connection
        if not session_id and "Sec-WebSocket-Protocol" not in self.request.headers:
            # nbclient and papermill behind a gateway, and only they: they take a second of silence for the end
            await asyncio.wait({asyncio.ensure_future(connection.kernel_manager.ready)}, timeout=NAMELESS_WAIT)
        await WebSocketHandler.get(self, kernel_id=kernel_id)

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Ours, then the one that carries bytes, then none, which is the legacy one. Never one that we don't speak."""
        assert self.connection is not None
        wanted = self.connection.kernel_ws_protocol
        offered = (ws.ELASTIC, ws.V1) if wanted is None else (wanted,)
        return next((name for name in offered if name and name in subprotocols), None)

    def open(self, kernel_id: str) -> None:  # type: ignore[override]
        super(KernelWebsocketHandler, self).open()  # keeps the socket alive with pings
        self.set_nodelay(True)  # else each small message waits 40 ms for the acknowledgement of the one before
        if self.connection is not None:
            self.connection.open()

    def on_message(self, ws_message: Any) -> None:
        if self.connection is not None:
            self.connection.handle_incoming_message(ws_message)

    def on_pong(self, data: bytes) -> None:
        super().on_pong(data)
        if data and self.connection is not None:
            self.connection.pong(data)

    def on_close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.disconnect()


default_handlers = [(rf"/api/kernels/{_kernel_id_regex}/channels", ChannelsHandler)]
