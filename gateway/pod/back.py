"""The supervisor's end of the kernel's own sockets: one set for each kernel process, new at each start.

A new set for each process is what keeps a message that an old kernel never read from running in the next one.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any, Callable

import zmq

from ..protocol.errors import WireError
from ..protocol.multipart import send
from ..protocol.wire import Part, Signer
from .front import kernel_endpoint
from .reactor import Reactor, drain

log = logging.getLogger(__name__)


class Back:
    """``on_answer(channel, envelope, parts)`` gets replies and input requests, ``on_iopub(parts, frames)`` what is published."""

    def __init__(
        self, context: zmq.Context, reactor: Reactor, info: dict[str, Any], signer: Signer,
        on_answer: Callable[[str, list[Part], list[Part]], None], on_iopub: Callable[[list[Part], list[bytes]], None],
    ) -> None:  # fmt: skip
        self._reactor, self._signer = reactor, signer
        identity = uuid.uuid4().hex.encode()  # one for shell and stdin: the kernel sends its input requests to the cell's sender
        self._sockets: dict[str, zmq.Socket] = {}
        self._handlers: dict[zmq.Socket, Callable[[list[bytes]], None]] = {}
        for channel in ("shell", "control", "stdin", "iopub"):
            socket = self._sockets[channel] = context.socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
            socket.linger = 0
            socket.sndhwm = socket.rcvhwm = 0  # a high-water mark would lose `idle` in a flood
            socket.reconnect_ivl = 5
            socket.reconnect_ivl_max = 100
            if channel == "iopub":
                socket.subscribe(b"")
            else:
                socket.identity = identity
            socket.connect(kernel_endpoint(info, channel))

        def answered(channel: str) -> Callable[[list[bytes]], None]:
            def handle(frames: list[bytes]) -> None:
                envelope, parts = self._checked(frames)
                on_answer(channel, envelope, parts)

            return handle

        def published(frames: list[bytes]) -> None:
            on_iopub(self._checked(frames)[1], frames)

        for channel in ("shell", "control", "stdin"):
            socket, handle = self._sockets[channel], answered(channel)
            self._handlers[socket] = handle
        self._handlers[self._sockets["iopub"]] = published
        for socket, handle in self._handlers.items():
            reactor.add(socket, lambda s=socket, h=handle: drain(s, h))  # type: ignore[misc]

    def read_rest(self) -> None:
        """The kernel has ended: take what it had said before."""
        for socket, handle in self._handlers.items():
            drain(socket, handle, most=1 << 30)

    def send(self, channel: str, envelope: list[Part], parts: list[Part]) -> None:
        send(self._sockets[channel], self._signer.wrap(parts, envelope))

    def close(self) -> None:
        for socket in self._sockets.values():
            self._reactor.remove(socket)
            socket.close()

    def _checked(self, frames: list[bytes]) -> tuple[list[Part], list[Part]]:
        """No signature check: the sockets lie in a folder of mode 0700, and the kernel's word binds nobody else."""
        try:
            at = frames.index(b"<IDS|MSG>")
        except ValueError:
            raise WireError("no <IDS|MSG> delimiter") from None
        if len(frames) < at + 6:
            raise WireError("a message needs a signature and four parts")
        return frames[:at], frames[at + 2 :]
