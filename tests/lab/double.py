"""A gateway for tests: real sockets, kernels that say what the test wants, and it can be killed and started again on its port.

Kernels outlive the server, as they outlive a gateway. ``protocol`` is what the websocket agrees to: ours, V1, or None (legacy).
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from gateway.protocol import websocket as ws
from gateway.protocol.wire import dumps, loads

WINDOW = 64 << 10


def message(msg_type: str, content: Any, parent: bytes = b"{}", session: str = "kernel", buffers: Sequence[bytes] = ()) -> list[bytes]:
    header = {"msg_id": uuid.uuid4().hex, "msg_type": msg_type, "session": session, "username": "", "date": "", "version": "5.3"}
    return [dumps(header), parent, b"{}", dumps(content), *buffers]


class Session:
    """One browser's numbers at the supervisor: what it is owed, what it has acknowledged, what it sent."""

    def __init__(self) -> None:
        self.owed: list[tuple[int, str, list[bytes]]] = []
        self.newest = self.acked = self.seen = 0
        self.socket: Channels | None = None
        self.sent_up_to = 0

    def publish(self, channel: str, parts: list[bytes]) -> None:
        self.newest += 1
        self.owed.append((self.newest, channel, parts))
        self.pump()

    def ack(self, n: int) -> None:
        self.acked = max(self.acked, n)
        self.owed = [entry for entry in self.owed if entry[0] > n]
        self.pump()

    def pump(self) -> None:
        flying = sum(len(p[3]) for n, _, p in self.owed if n <= self.sent_up_to)
        for n, channel, parts in self.owed:
            if n > self.sent_up_to and self.socket is not None and (not flying or flying < WINDOW):
                flying += len(parts[3])
                self.sent_up_to = n
                self.socket.out(n, channel, parts)


class Kernel:
    def __init__(self, kernel_id: str) -> None:
        self.id = kernel_id
        self.sessions: dict[str, Session] = {}
        self.received: list[tuple[str, list[bytes]]] = []  # what the kernel was sent, each once
        self.stock: list[Channels] = []

    @property
    def model(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": "double",
            "last_activity": "2030-01-01T00:00:00.000001Z",
            "execution_state": "idle",
            "connections": len(self.sessions),
        }

    @property
    def codes(self) -> list[str]:
        return [loads(parts[3]).get("code", "") for _, parts in self.received]

    def publish(self, channel: str, parts: list[bytes]) -> None:
        for session in self.sessions.values():
            session.publish(channel, parts)
        for socket in self.stock:
            socket.out(0, channel, parts)

    def line(self, text: str) -> None:
        self.publish("iopub", message("stream", {"name": "stdout", "text": text}))


class Gateway:
    """``async with``-free on purpose: tests start, kill and stop it at any point."""

    def __init__(self, port: int, protocol: str | None = ws.ELASTIC) -> None:
        self.port, self.protocol = port, protocol
        self.kernels: dict[str, Kernel] = {}
        self.sockets: set[Channels] = set()
        self.dials = 0
        self.streams: set[Api] = set()
        self.server: HTTPServer | None = None

    def start(self) -> None:
        routes = [
            (r"/api/kernels", Kernels, {"gateway": self}),
            (r"/api/kernelspecs", Specs),
            (r"/api/kernels/([^/]+)", One, {"gateway": self}),
            (r"/api/kernels/([^/]+)/channels", Channels, {"gateway": self}),
            (r"/api/(?:gpu|bursts)(?:/.*)?", Api, {"gateway": self}),
        ]
        self.server = HTTPServer(Application(routes, websocket_max_message_size=1 << 30))  # type: ignore[arg-type]
        self.server.add_sockets(bind_sockets(self.port, "127.0.0.1"))

    async def kill(self) -> None:
        """As by SIGKILL: nobody is told."""
        assert self.server is not None
        self.server.stop()
        for socket in list(self.sockets):
            socket.abort()
        await self.server.close_all_connections()
        self.server = None


class Handler(RequestHandler):
    def initialize(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def kernel(self, kernel_id: str) -> Kernel | None:
        if kernel_id not in self.gateway.kernels:
            self.set_status(404)
            self.finish({"message": "no such kernel"})
        return self.gateway.kernels.get(kernel_id)


class Kernels(Handler):
    def get(self) -> None:
        self.finish(json.dumps([kernel.model for kernel in self.gateway.kernels.values()]))

    def post(self) -> None:
        kernel = Kernel(str(uuid.uuid4()))
        self.gateway.kernels[kernel.id] = kernel
        self.set_status(201)
        self.finish(kernel.model)


class One(Handler):
    def get(self, kernel_id: str) -> None:
        if kernel := self.kernel(kernel_id):
            self.finish(kernel.model)

    def delete(self, kernel_id: str) -> None:
        self.gateway.kernels.pop(kernel_id, None)
        self.set_status(204)


class Specs(RequestHandler):
    def get(self) -> None:
        spec = {"name": "double", "spec": {"argv": [], "display_name": "Double", "language": "python"}, "resources": {}}
        self.finish({"default": "double", "kernelspecs": {"double": spec}})


class Api(Handler):
    """Says what it was asked; ``.../events`` never ends by itself."""

    async def get(self) -> None:
        if not self.request.path.endswith("/events"):
            self.told()
            return
        self.left = asyncio.Event()
        self.gateway.streams.add(self)
        self.set_header("Content-Type", "text/event-stream")
        await self.say("event: state\ndata: {}\n\n")
        await self.left.wait()
        self.gateway.streams.discard(self)

    async def say(self, text: str) -> None:
        self.write(text)
        await self.flush()

    def post(self) -> None:
        self.set_status(409)
        self.told()

    delete = patch = post

    def told(self) -> None:
        self.set_header("X-Secret", "of the gateway")
        request = self.request
        asked = {"method": request.method, "uri": request.uri, "body": request.body.decode()}
        self.finish({**asked, "authorization": request.headers.get("Authorization", ""), "cookie": request.headers.get("Cookie", "")})

    def on_connection_close(self) -> None:
        if self in self.gateway.streams:
            self.left.set()


class Channels(WebSocketHandler):
    def initialize(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.session: Session | None = None

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return self.gateway.protocol if self.gateway.protocol in subprotocols else None

    async def get(self, kernel_id: str) -> None:  # type: ignore[override]
        self.gateway.dials += 1
        if kernel_id not in self.gateway.kernels:
            self.set_status(404)
            self.finish()
            return
        self.kernel = self.gateway.kernels[kernel_id]
        await super().get(kernel_id)

    def open(self, kernel_id: str) -> None:  # type: ignore[override]
        self.gateway.sockets.add(self)
        if self.selected_subprotocol != ws.ELASTIC:
            self.kernel.stock.append(self)
            return
        session = self.kernel.sessions.setdefault(self.get_query_argument("session_id"), Session())
        self.session = session
        session.ack(int(self.get_query_argument("after", str(session.acked))))
        session.socket, session.sent_up_to = self, session.acked
        self.write_message(ws.encode_attached(session.acked, 0, session.seen), binary=True)
        session.pump()

    def on_message(self, frame: str | bytes) -> None:
        if self.session is None:
            decode: Any = ws.decode_v1 if self.selected_subprotocol == ws.V1 else ws.decode_legacy
            channel, parts = decode(frame)
            self.take(channel, parts)
            return
        assert isinstance(frame, bytes)
        kind, (number, *_), body = ws.decode_elastic(frame)
        if kind == ws.ACK:
            self.session.ack(number)
        elif body is not None:
            if number > self.session.seen:
                self.session.seen = number
                self.take(*ws.decode_v1(body))
            self.write_message(ws.encode_ack(self.session.seen), binary=True)

    def take(self, channel: str, parts: Sequence[Any]) -> None:
        """To the kernel, which echoes comms with their buffers and answers cells."""
        raw = [bytes(part) for part in parts]
        ws.check_request(channel, raw)
        self.kernel.received.append((channel, raw))
        msg_type = loads(raw[0])["msg_type"]
        if msg_type == "comm_msg":
            self.kernel.publish("iopub", message("comm_msg", {"echo": True}, raw[0], buffers=raw[4:]))
        elif msg_type == "execute_request":
            self.kernel.publish("shell", message("execute_reply", {"status": "ok", "code": loads(raw[3])["code"]}, raw[0]))

    def out(self, n: int, channel: str, parts: list[bytes]) -> None:
        if self.ws_connection is None:
            return
        frame: str | bytes
        if self.session is not None:
            frame = ws.encode_message(n, channel, parts)
        else:
            frame = (ws.encode_v1 if self.selected_subprotocol == ws.V1 else ws.encode_legacy)(channel, parts)
        try:
            self.write_message(frame, binary=isinstance(frame, bytes)).add_done_callback(lambda f: f.exception())
        except WebSocketClosedError:
            pass  # the other side has hung up, and on_close comes in a moment; what is owed stays owed

    def abort(self) -> None:
        if self.ws_connection is not None:
            self.ws_connection._abort()
        self.on_close()

    def on_close(self) -> None:
        self.gateway.sockets.discard(self)
        if self in self.kernel.stock:
            self.kernel.stock.remove(self)
        if self.session is not None and self.session.socket is self:
            self.session.socket = None
