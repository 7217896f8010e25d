"""A supervisor without a kernel: the real wire over a real ZMQ socket, and a lease that obeys at once (or as a test tells it)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import zmq

from gateway.backends.base import Supervisor
from gateway.protocol import wire
from gateway.protocol.model import GPU_IN_USE, KernelState, LeaseState, Phase


class FakeSupervisor(Supervisor):
    """Runs on the test's own loop. ``refuse``: the answers that orders get instead of "done"; ``slow`` orders wait for ``finish``."""

    def __init__(self, kernel_id: str = "k1", user: str = "ada", count: int = 1, owner: str = "", folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="fs"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.kernel_id, self.user, self.owner = kernel_id, user, owner
        self.name, self.display, self.key, self.metadata = "elastic-python", f"{kernel_id}.ipynb", "secret", {}
        self.place = str(self.folder)
        self.connection = {"transport": "tcp", "ip": "127.0.0.1", "signature_scheme": "hmac-sha256"}
        self.link_address = f"ipc://{self.folder}/{kernel_id}"
        self.state = KernelState(kernel_id=kernel_id, alive=True, ready=True, starts=1, pid=4242, lease=LeaseState(count=count))
        self.orders: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.received: list[tuple[dict[str, Any], list[bytes]]] = []
        self.hellos: list[dict[str, Any]] = []
        self.refuse: dict[str, str] = {}
        self.slow: set[str] = set()
        self.mute = False
        self.used = False  # what its driver says
        self.living = True
        self._epoch = (0, 0)
        self._dialers: list[bytes] = []
        self._number: dict[str, int] = {}
        self._socket: zmq.Socket[bytes] | None = None

    # the test's hands

    def listen(self) -> FakeSupervisor:
        self._loop = asyncio.get_running_loop()
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.bind(self.link_address)
        self._loop.add_reader(self._socket.fd, self._read)
        return self

    def hang_up(self) -> None:
        """Cut every line; ``listen`` again to be found again."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fd)
            self._socket.close(0)
            self._socket = None
        self._dialers.clear()

    def die(self) -> None:
        self.living = False
        self.hang_up()

    def forget_dialers(self) -> None:
        """As one does that has heard nothing for too long."""
        self._dialers.clear()

    def tell(self, **lease: Any) -> None:
        """Change the lease and say so."""
        for name, value in lease.items():
            setattr(self.state.lease, name, value)
        for address in self._dialers:
            self._send(address, wire.pack("state", state=self.state.to_json()))

    def want(self) -> None:
        lease = self.state.lease
        self.tell(wanted=True, phase=Phase.WAITING if lease.phase in (Phase.COLD, Phase.PARKED) else lease.phase)

    def run(self) -> None:
        self.tell(executing=True, idle_for=None)

    def idle(self) -> None:
        self.tell(executing=False, idle_for=0.0)

    def restart(self) -> None:
        self.state.starts += 1
        self.tell(phase=Phase.COLD, gpus=[], home=[], wanted=False, executing=False, parked_bytes=0)

    def finish(self, do: str, answer: str = "done", **fields: Any) -> None:
        """Answer the newest order of that kind, which was slow."""
        order = [order for order in self.orders if order["do"] == do][-1]
        self._obey(order, answer, **fields)

    def publish(self, session: str, parts: list[bytes], channel: str = "iopub") -> None:
        self._number[session] = self._number.get(session, 0) + 1
        for address in self._dialers:
            self._send(address, wire.pack("out", parts, session=session, n=self._number[session], channel=channel))

    def say(self, kind: str, **fields: Any) -> None:
        for address in self._dialers:
            self._send(address, wire.pack(kind, **fields))

    # Supervisor

    def alive(self) -> bool:
        return self.living

    async def end(self, grace: float) -> None:
        self.die()

    def last_words(self) -> str:
        return ""

    # the wire

    def _send(self, address: bytes, frames: list[Any]) -> None:
        assert self._socket is not None
        self._socket.send_multipart([address, *frames])
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        while self._socket is not None:
            try:
                address, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            header, parts = wire.unpack(frames)
            if not self.mute:
                self._receive(address, header, parts)

    def _receive(self, address: bytes, header: dict[str, Any], parts: list[bytes]) -> None:
        kind = header["t"]
        if kind == "hello":
            self.hellos.append(header)
            if not header["versions"][0] <= wire.NEWEST_VERSION <= header["versions"][1]:
                self._send(address, wire.pack("refused", message="no version in common", reason="no_common_version"))
                return
            self._dialers.append(address)
            self._send(address, wire.pack("welcome", version=wire.NEWEST_VERSION, state=self.state.to_json()))
        elif address not in self._dialers:
            self._send(address, wire.pack("refused", message="say hello first", reason="no_hello"))
        elif kind == "order":
            if tuple(header["epoch"]) <= self._epoch:
                self._send(address, wire.pack("refused", message="an older order", reason="stale_order"))
                return
            self._epoch = tuple(header["epoch"])
            self.orders.append(header)
            if header["do"] == "grant":
                self.tell(phase=Phase.RESUMING, gpus=header["gpus"])
            elif header["do"] == "park":
                self.tell(phase=Phase.PARKING)
            if header["do"] not in self.slow:
                self._obey(header, self.refuse.get(header["do"], "done"))
        elif kind == "call":
            self.calls.append(header)
            if header["do"] == "hold":
                self.tell(hold_for=header["seconds"])
            elif header["do"] == "release":
                self.tell(release_asked=self.state.lease.release_asked + 1)
            answer, more = self.refuse.get(header["do"]), {"used": self.used} if header["do"] == "uses" else {}
            self._send(address, wire.pack("answer", id=header["id"], ok=not answer, message=answer or "", reason=answer or "", **more))
        elif kind == "attach":
            n = header["after"] or 0
            self._number.setdefault(header["session"], n)
            self._send(address, wire.pack("attached", session=header["session"], n=n, lost=0, seen=0))
        elif kind == "ping":
            self._send(address, wire.pack("pong"))
        elif kind == "bye":
            self._dialers.remove(address)
        else:
            self.received.append((header, parts))

    def _obey(self, order: dict[str, Any], answer: str, **fields: Any) -> None:
        lease = self.state.lease
        said = {"order": order["epoch"], "answer": answer, **fields}
        if order["do"] == "grant" and answer == "done":
            self.tell(phase=Phase.HOLDING, gpus=order["gpus"], home=order["gpus"], wanted=False, parked_bytes=0, idle_for=0.0, **said)
        elif order["do"] == "grant" and answer == GPU_IN_USE:
            self.tell(phase=Phase.WAITING, gpus=[], **said)
        elif order["do"] == "grant":
            self.tell(phase=Phase.PARKED if lease.home else Phase.COLD, gpus=[], wanted=False, **said)
        elif order["do"] == "park" and answer == "done":
            phase = Phase.WAITING if lease.wanted else Phase.PARKED
            self.tell(**{"phase": phase, "home": lease.gpus, "gpus": [], "parked_bytes": 1000, **said})
        elif order["do"] == "park":
            self.tell(phase=Phase.HOLDING, **said)
        elif order["do"] == "deny":
            self.tell(phase=Phase.PARKED if lease.home else Phase.COLD, wanted=False, **said)
