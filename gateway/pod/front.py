"""The plain Jupyter ports, for clients that speak ZMQ: nbclient, papermill, consoles, debuggers.

They outlive the kernel process: a restart changes no port. Messages with a bad signature are dropped here and go no further.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Callable, Optional

import zmq

from ..protocol.errors import WireError
from ..protocol.model import Spec
from ..protocol.multipart import send
from ..protocol.wire import Part, Signer
from .messages import Messages
from .reactor import Reactor, drain

log = logging.getLogger(__name__)

PLAIN = b"P"  # first envelope frame of requests that came through these ports

_KINDS = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.XPUB, "hb": zmq.ROUTER}


class Front:
    """Binds the five ports. ``on_request(channel, envelope, parts)`` gets each message that a client has properly signed."""

    def __init__(
        self, context: zmq.Context, spec: Spec, signer: Signer, messages: Messages, alive: Callable[[], bool],
        on_request: Callable[[str, list[Part], list[Part]], None],
    ) -> None:  # fmt: skip
        self._signer, self._messages, self._alive, self._on_request = signer, messages, alive, on_request
        self._sockets: dict[str, zmq.Socket] = {}
        self._bad = 0
        self._subscribers = 0
        for channel, kind in _KINDS.items():
            socket = self._sockets[channel] = context.socket(kind)
            socket.linger = 1000
            socket.sndhwm = socket.rcvhwm = 0
            if kind == zmq.ROUTER:
                socket.router_handover = 1  # a client that reconnects under its old identity takes its place again
            else:
                socket.xpub_verbose = 1
            if spec.curve_secretkey:
                socket.curve_secretkey = spec.curve_secretkey.encode()
                socket.curve_publickey = (spec.curve_publickey or "").encode()
                socket.curve_server = True
            socket.bind(f"tcp://{spec.ip}:{spec.ports.get(channel, 0) or '*'}")
        self.connection: dict[str, Any] = {
            "transport": "tcp",
            "ip": spec.ip,
            **{f"{channel}_port": _port(socket) for channel, socket in self._sockets.items()},
            "signature_scheme": "hmac-sha256",
        }
        if spec.curve_publickey:
            self.connection["curve_publickey"] = spec.curve_publickey

    def watch(self, reactor: Reactor) -> None:
        for channel in ("shell", "control", "stdin"):
            socket = self._sockets[channel]
            reactor.add(socket, lambda c=channel, s=socket: drain(s, lambda frames: self._request(c, frames)))  # type: ignore[misc]
        reactor.add(self._sockets["hb"], lambda: drain(self._sockets["hb"], self._beat))
        reactor.add(self._sockets["iopub"], lambda: drain(self._sockets["iopub"], self._subscribed))

    def answer(self, channel: str, envelope: list[Part], parts: list[Part]) -> None:
        """Send a reply (or an input request) to the client that ``envelope`` names."""
        send(self._sockets[channel], self._signer.wrap(parts, envelope[1:]))

    def publish(self, parts: list[Part], topic: Part = b"", wrapped: Optional[list[bytes]] = None) -> None:
        """Send to all who subscribed; ``wrapped`` is the whole signed message, where it came so from the kernel."""
        if self._subscribers > 0:
            send(self._sockets["iopub"], wrapped or self._signer.wrap(parts, [topic]))

    def close(self) -> None:
        for socket in self._sockets.values():
            socket.close()

    def _request(self, channel: str, frames: list[bytes]) -> None:
        try:
            idents, parts = self._signer.unwrap(frames)
            self._on_request(channel, [PLAIN, *idents], parts)
        except WireError as exc:
            self._bad += 1
            if self._bad & (self._bad - 1) == 0:  # the 1st, 2nd, 4th, 8th, ... so that a flood of them can't fill the log
                log.warning("dropped a message on %s: %s (%d so far)", channel, exc, self._bad)

    def _beat(self, frames: list[bytes]) -> None:
        if self._alive():
            self._sockets["hb"].send_multipart(frames)

    def _subscribed(self, frames: list[bytes]) -> None:
        verb = frames[0][:1]
        if verb == b"\x01":
            self._subscribers += 1
            topic = frames[0][1:].decode("utf-8", "replace")
            self.publish(self._messages.make("iopub_welcome", {"subscription": topic}), frames[0][1:])
        elif verb == b"\x00":
            self._subscribers -= 1


def _port(socket: zmq.Socket) -> int:
    return int(socket.last_endpoint.rpartition(b":")[2].strip(b"\0"))


def kernel_endpoint(info: dict[str, Any], channel: str) -> str:
    """The address of one of the kernel's own ports."""
    port = info[f"{channel}_port"]
    return f"ipc://{info['ip']}-{port}" if info["transport"] == "ipc" else f"tcp://{info['ip']}:{port}"


def private(path: str) -> None:
    """Only this user may connect to a socket file."""
    os.chmod(path, 0o600)
