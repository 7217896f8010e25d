"""A real supervisor with a real kernel, a plain Jupyter client and a dialer on its link, for the integration tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from jupyter_client import BlockingKernelClient
from jupyter_client.session import Session

from gateway.pod.child import started
from gateway.protocol import wire
from gateway.protocol.model import KernelState, Spec

PYTHON = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=gateway.magics"]
BASH = [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"]
PATIENCE = 20.0


class Supervised:
    """One supervisor; it ends with this process whatever happens."""

    def __init__(self, argv: list[str] | None = None, owner: int | None = None, **spec: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sv-", dir="/tmp"))
        self.key = uuid.uuid4().hex
        pid = owner or os.getpid()
        cost = {"park_seconds": 0.05, "seconds_per_gb": 0.05}
        spec = {"simulated": cost, "name": "python3", "env": dict(os.environ), "notice_after": 0.05, **spec}
        owned = {"owner_pid": pid, "owner_started": started(pid)}
        told = Spec(kernel_id=str(uuid.uuid4()), argv=argv or PYTHON, cwd="/tmp", key=self.key, **owned, **spec)
        (self.folder / "spec.json").write_text(json.dumps(told.to_json()))
        reader, writer = os.pipe()
        with open(self.folder / "supervisor.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gateway.pod.supervisor", str(self.folder), str(writer)],
                pass_fds=[writer], stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        os.close(writer)
        self.said = os.read(reader, 4096).decode()
        os.close(reader)
        if self.said == "ready\n":
            self.identity = json.loads((self.folder / "supervisor.json").read_text())
        self._open: list[Any] = []

    def client(self) -> BlockingKernelClient:
        """A plain client, as nbclient has one."""
        client = BlockingKernelClient()
        client.load_connection_info({**self.identity["connection"], "key": self.key.encode()})
        client.start_channels()
        client.wait_for_ready(PATIENCE)
        self._open.append(client.stop_channels)
        return client

    def dial(self, generation: int = 1, roles: tuple[str, ...] = ("owner", "broker", "sessions")) -> Dialer:
        dialer = Dialer(self.identity["link"], generation, roles)
        self._open.append(dialer.close)
        return dialer

    def end(self) -> None:
        for close in self._open:
            close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE)


class Dialer:
    """One end of a link, synchronous. ``heard`` holds all that came, ``state`` the newest state."""

    def __init__(self, address: str, generation: int, roles: tuple[str, ...]) -> None:
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.connect(address)
        self._generation, self._orders, self._calls = generation, 0, 0
        self._jupyter = Session(key=b"")
        self.heard: list[tuple[dict[str, Any], list[bytes]]] = []
        self.state = KernelState()
        self.send("hello", versions=[1, 1], generation=generation, roles=list(roles))
        self.wait("welcome")

    def close(self) -> None:
        self._socket.close()

    def send(self, type_: str, parts: Any = (), **fields: Any) -> None:
        self._socket.send_multipart(wire.pack(type_, parts, **fields))

    def receive(self, patience: float = PATIENCE) -> tuple[dict[str, Any], list[bytes]]:
        if not self._socket.poll(int(patience * 1000)):
            raise TimeoutError(f"nothing in {patience} s; last state {self.state}")
        header, parts = wire.unpack(self._socket.recv_multipart())
        if "state" in header:
            self.state = KernelState.from_json(header["state"])
        self.heard.append((header, parts))
        return header, parts

    def wait(self, type_: str) -> dict[str, Any]:
        while True:
            header, _ = self.receive()
            if header["t"] == type_:
                return header

    def until(self, true: Callable[[KernelState], Any]) -> KernelState:
        end = time.monotonic() + PATIENCE
        while not true(self.state):
            self.receive(end - time.monotonic())
        return self.state

    def order(self, do: str, **fields: Any) -> None:
        self._orders += 1
        self.send("order", do=do, epoch=[self._generation, self._orders], **fields)

    def grant(self, *gpus: str) -> None:
        self.until(lambda state: state.lease.wanted)
        self.order("grant", gpus=list(gpus) or ["GPU-SIM-0"])

    def call(self, do: str, **fields: Any) -> dict[str, Any]:
        self._calls += 1
        self.send("call", id=self._calls, do=do, **fields)
        return self.wait("answer")

    def execute(self, session: str, code: str, m: int | None = None) -> str:
        """Send a cell as one browser would; returns its msg_id."""
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True, "stop_on_error": True}
        message = self._jupyter.msg("execute_request", content)
        parts = [wire.dumps(part) for part in (json.loads(json.dumps(message["header"], default=str)), {}, {}, content)]
        self.send("in", parts, session=session, channel="shell", m=m)
        return str(message["header"]["msg_id"])

    def outputs(self, session: str, msg_id: str, ack: bool = True) -> list[tuple[int, str, dict[str, Any]]]:
        """``(number, msg_type, content)`` of all that belongs to a cell, until its reply and idle are both there."""
        found, replied, idle = [], False, False
        while not (replied and idle):
            header, parts = self.receive()
            if header["t"] != "out" or header["session"] != session:
                continue
            if ack:
                self.send("ack", session=session, n=header["n"])
            if wire.loads(parts[1]).get("msg_id") != msg_id:
                continue
            msg_type, content = wire.loads(parts[0])["msg_type"], wire.loads(parts[3])
            found.append((header["n"], msg_type, content))
            replied |= msg_type == "execute_reply"
            idle |= msg_type == "status" and content["execution_state"] == "idle"
        return found


def collect(client: BlockingKernelClient, msg_id: str, patience: float = PATIENCE) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The reply's content and the iopub messages of one cell of a plain client, until reply and idle are both there."""
    reply: dict[str, Any] | None = None
    published: list[dict[str, Any]] = []
    idle = False
    end = time.monotonic() + patience
    while reply is None or not idle:
        if time.monotonic() > end:
            raise TimeoutError(f"reply {reply}, published {published}")
        if client.shell_channel.socket.poll(10):
            message = client.get_shell_msg(timeout=1)
            if message["parent_header"].get("msg_id") == msg_id:
                reply = message["content"]
        while client.iopub_channel.socket.poll(0):
            message = client.get_iopub_msg(timeout=1)
            if message["parent_header"].get("msg_id") == msg_id:
                published.append(message)
                idle |= message["content"].get("execution_state") == "idle"
    return reply, published
