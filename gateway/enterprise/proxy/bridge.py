"""A kernel's five ZMQ sockets on the machine of an Enterprise Gateway, and behind them a line to the elastic gateway.

Towards Enterprise Gateway this is the kernel: it signs and checks with the kernel's key. Towards the elastic gateway it is one client,
whose line keeps and repeats what a killed gateway would lose. It must never answer for the kernel but where its end is asked for.
"""

from __future__ import annotations

import asyncio
import errno
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from logging import Logger
from typing import Any

import zmq
import zmq.asyncio

from ...lab.line import Line, Patience
from ...protocol.errors import WireError
from ...protocol.wire import Part, Signer, dumps, loads
from .elsewhere import Elsewhere

PATIENCE = Patience(retry_first=0.1, retry_max=3.0, notice_after=2.0, gone_after=3.0, keep=60.0, outbox_bytes=128 << 20)
BIND_SECONDS = 5.0  # for the ports of the kernel before to be free
TAKEN_SECONDS = 0.05  # between two confirmations to the gateway
OPEN_REQUESTS = 10_000  # whose asker is remembered

_KINDS = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.PUB, "hb": zmq.ROUTER}


class Bridge:
    """Of one kernel. ``ended`` is called once, when the elastic gateway has no such kernel any more; ``shutdown`` when a client
    asks for its end by message."""

    def __init__(
        self, elsewhere: Elsewhere, kernel_id: str, key: bytes, log: Logger, ended: Callable[[], None], shutdown: Callable[[], None]
    ) -> None:
        self._kernel_id, self._signer, self._log, self._ended, self._shutdown = kernel_id, Signer(key), log, ended, shutdown
        self._askers: OrderedDict[tuple[str, str], list[bytes]] = OrderedDict()  # of open requests, by channel and msg_id
        self._sockets: dict[str, zmq.asyncio.Socket] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._newest, self._taking = 0, False
        self._line = Line(elsewhere.dialler(kernel_id, uuid.uuid4().hex), PATIENCE, log, lambda _line: None)
        self._open = False

    async def open(self, ip: str, ports: Mapping[str, int]) -> None:
        """``ports``: by channel. Raises ``OSError`` where one is taken and stays so."""
        context = zmq.asyncio.Context.instance()
        try:
            for channel, kind in _KINDS.items():
                socket = self._sockets[channel] = context.socket(kind)
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(zmq.SNDHWM, 0)
                socket.setsockopt(zmq.RCVHWM, 0)
                if kind == zmq.ROUTER:
                    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a client that comes back under its name
                await _bind(socket, f"tcp://{ip}:{ports[channel]}")
        except BaseException:
            self._close_sockets()
            raise
        self._open = True
        self._line.open(self)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._hear(channel)) for channel in ("shell", "control", "stdin")]
        self._tasks.append(loop.create_task(self._beat()))

    def close_all(self) -> None:
        """Whatever happens to the kernel."""
        self._open = False
        self._line.end()
        for task in self._tasks:
            task.cancel()
        self._close_sockets()

    # what the line calls

    def deliver(self, n: int | None, channel: str, parts: Sequence[Part]) -> Awaitable[None] | None:
        """From the kernel to whom it concerns."""
        if not self._open:
            return None
        sending = None
        if channel == "iopub":
            sending = self._send(channel, parts, [f"kernel.{self._kernel_id}".encode()])
        else:
            idents = self._asker(channel, parts)
            if idents is not None:
                sending = self._send(channel, parts, idents)
        if n is not None:
            self._newest = n
            if not self._taking:
                self._taking = True
                asyncio.get_running_loop().call_later(TAKEN_SECONDS, self._take)
        return sending

    def close(self, code: int, reason: str) -> None:
        """The gateway doesn't have the kernel any more."""
        self._log.info("The elastic gateway has no kernel %s any more (%s %s).", self._kernel_id, code, reason)
        if self._open:
            self._ended()

    # inside

    def _take(self) -> None:
        self._taking = False
        if self._open:
            self._line.taken(self._newest)

    def _send(self, channel: str, parts: Sequence[Part], idents: Sequence[Part]) -> Awaitable[None]:
        return self._sockets[channel].send_multipart(self._signer.wrap(parts, idents), copy=False)

    def _asker(self, channel: str, parts: Sequence[Part]) -> list[bytes] | None:
        """Whose request a message answers; input is asked of the one whose cell runs."""
        try:
            header, parent = loads(parts[0]), loads(parts[1])
        except WireError:
            return None
        key = "shell" if channel == "stdin" else channel, str(parent.get("msg_id"))
        if str(header.get("msg_type", "")).endswith("_reply"):
            return self._askers.pop(key, None)
        return self._askers.get(key)

    async def _hear(self, channel: str) -> None:
        """From clients to the kernel."""
        while True:
            frames = await self._sockets[channel].recv_multipart()
            try:
                idents, parts = self._signer.unwrap(frames)
                header = loads(parts[0])
            except WireError as exc:
                self._log.warning("Dropped a message for kernel %s: %s", self._kernel_id, exc)
                continue
            if header.get("msg_type") == "shutdown_request":
                self._asked_to_end(channel, idents, parts, header)
                continue
            if channel != "stdin":
                self._askers[channel, str(header.get("msg_id"))] = [bytes(ident) for ident in idents]
                while len(self._askers) > OPEN_REQUESTS:
                    self._askers.popitem(last=False)
            self._line.send(channel, parts)

    def _asked_to_end(self, channel: str, idents: Sequence[Part], parts: Sequence[Part], header: dict[str, Any]) -> None:
        """Its gateway ends the kernel, and would start another in its place if the kernel ended by itself."""
        try:
            restart = bool(loads(parts[3]).get("restart"))
        except WireError:
            restart = False
        now = datetime.now(UTC).isoformat()
        reply = {**header, "msg_id": uuid.uuid4().hex, "msg_type": "shutdown_reply", "date": now}
        self._send(channel, [dumps(reply), parts[0], b"{}", dumps({"status": "ok", "restart": restart})], idents)
        self._shutdown()

    async def _beat(self) -> None:
        while True:
            await self._sockets["hb"].send_multipart(await self._sockets["hb"].recv_multipart())

    def _close_sockets(self) -> None:
        for socket in self._sockets.values():
            socket.close(linger=0)


async def _bind(socket: zmq.asyncio.Socket, address: str) -> None:
    pause, waited = 0.05, 0.0
    while True:
        try:
            socket.bind(address)
            return
        except zmq.ZMQError as exc:
            if exc.errno != errno.EADDRINUSE or waited >= BIND_SECONDS:
                raise OSError(exc.errno, f"{address} can't be had: {exc.strerror}") from None
        await asyncio.sleep(pause)
        waited += pause
