"""What is measured against what: a bare ipykernel, the same kernel behind a supervisor, and a real gateway over a websocket."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from gateway.protocol.websocket import V1, decode_v1, encode_v1
from gateway.protocol.wire import dumps, loads

from ..integration.supervised import Supervised

PATIENCE = 120.0
DATE = "2026-01-01T00:00:00Z"  # of every message: nobody reads it


class Bare:
    """An ipykernel as jupyter_client starts it, spoken to over TCP."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        started = time.perf_counter()
        self.manager.start_kernel()
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(PATIENCE)
        self.start_seconds = time.perf_counter() - started

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


class Gated:
    """The same behind a supervisor, over its plain ports."""

    def __init__(self) -> None:
        started = time.perf_counter()
        self.supervised = Supervised(gpus=0)
        self.client = self.supervised.client()
        self.start_seconds = time.perf_counter() - started

    @property
    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.supervised.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def close(self) -> None:
        self.supervised.end()


def run_plain(client: BlockingKernelClient, code: str) -> int:
    """Run a cell over ZMQ until reply and idle are there; returns the number of messages published."""
    client.execute(code)
    published = 0
    while True:
        message = client.get_iopub_msg(timeout=PATIENCE)
        published += 1
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    client.get_shell_msg(timeout=PATIENCE)
    return published


class Server:
    """A real Jupyter server process on a free port of the loopback address, with a folder of its own."""

    module = ""

    def __init__(self, **settings: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bg-", dir="/tmp"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.token = secrets.token_hex()
        lines = ["c.ServerApp.allow_root = True"] + [f"c.{name.replace('__', '.')} = {value!r}" for name, value in settings.items()]
        config = self.folder / "config.py"
        config.write_text("\n".join([f"c.ServerApp.port = {port}", f"c.IdentityProvider.token = {self.token!r}", *lines]))
        config.chmod(0o600)
        self.url, self.headers = f"http://127.0.0.1:{port}", {"Authorization": f"token {self.token}"}
        env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(self.folder / "run")}
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", self.module, f"--config={config}"], env=env, stdout=log, stderr=log)

    async def up(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                await self.request("GET", "/api")
                return
            except OSError:
                await asyncio.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text()[-3000:])

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body)
        request = HTTPRequest(
            self.url + path, method=method, headers=self.headers, body=sent, request_timeout=PATIENCE, allow_nonstandard_methods=True
        )
        response = await AsyncHTTPClient().fetch(request)
        return json.loads(response.body) if response.body else None

    async def kernel(self, name: str = "elastic-python", **env: str) -> Browser:
        model = await self.request("POST", "/api/kernels", {"name": name, "env": env})
        browser = Browser(self, model["id"])
        await browser.open()
        return browser

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


class Gateway(Server):
    module = "gateway.cli"

    def close(self) -> None:
        super().close()
        for pid in self.supervisors():
            os.kill(pid, signal.SIGTERM)

    def supervisors(self) -> list[int]:
        return [json.loads(path.read_text())["pid"] for path in (self.folder / "run").glob("elastic/k/*/supervisor.json")]


class Lab(Server):
    """A user's JupyterLab server in front of a gateway."""

    module = "jupyterlab"

    def __init__(self, gateway: Gateway) -> None:
        client = {"GatewayClient__url": gateway.url, "GatewayClient__auth_token": gateway.token}
        super().__init__(ServerApp__open_browser=False, ServerApp__root_dir=str(gateway.folder), **client)


class Browser:
    """One websocket, v1 protocol, as JupyterLab has it."""

    def __init__(self, gateway: Server, kernel_id: str) -> None:
        self.gateway, self.kernel_id, self.session = gateway, kernel_id, uuid.uuid4().hex
        self.lines = 0  # of output, received so far
        self.printed, self.keep = "", False

    async def open(self) -> None:
        url = f"{self.gateway.url.replace('http', 'ws')}/api/kernels/{self.kernel_id}/channels?session_id={self.session}"
        self.socket = await websocket_connect(HTTPRequest(url, headers=self.gateway.headers), subprotocols=[V1], max_message_size=1 << 30)
        self.socket.stream.set_nodelay(True)  # type: ignore[attr-defined]

    async def send(self, msg_type: str, content: dict[str, Any], buffers: tuple[bytes, ...] = ()) -> str:
        msg_id = uuid.uuid4().hex
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": self.session, "username": "", "version": "5.3", "date": DATE}
        await self.socket.write_message(encode_v1("shell", [dumps(header), b"{}", b"{}", dumps(content), *buffers]), binary=True)
        return msg_id

    async def receive(self) -> tuple[dict[str, Any], list[memoryview]]:
        frame = await asyncio.wait_for(self.socket.read_message(), PATIENCE)
        assert isinstance(frame, bytes), f"the gateway closed the socket: {self.socket.close_code} {self.socket.close_reason}"
        _, parts = decode_v1(frame)
        return loads(parts[0]), parts

    async def begin(self, code: str) -> str:
        """Send a cell; returns the message's id."""
        ways = {"silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
        return await self.send("execute_request", {"code": code, **ways})

    async def run(self, code: str) -> int:
        """Run a cell until reply and idle are there; returns the number of messages."""
        msg_id = await self.begin(code)
        count, replied, idle = 0, False, False
        while not (replied and idle):
            header, parts = await self.receive()
            count += 1
            if header["msg_type"] == "stream":
                content = loads(parts[3])
                self.lines += content["text"].count("\n")
                self.printed += content["text"] if self.keep and content["name"] == "stdout" else ""
            if header["msg_type"] in ("execute_reply", "status") and loads(parts[1]).get("msg_id") == msg_id:
                if header["msg_type"] == "execute_reply":
                    replied = True
                    assert loads(parts[3])["status"] == "ok", bytes(parts[3])
                idle |= loads(parts[3]).get("execution_state") == "idle"
        return count

    async def text(self, code: str) -> str:
        """Run a cell and return what it printed."""
        self.printed, self.keep = "", True
        await self.run(code)
        self.keep = False
        return self.printed

    async def delete(self) -> None:
        self.socket.close()
        await self.gateway.request("DELETE", f"/api/kernels/{self.kernel_id}")
