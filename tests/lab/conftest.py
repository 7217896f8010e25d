"""A real Lab server in front of a gateway that tests start and kill; one server for all tests of this room."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gateway.protocol import websocket as ws
from gateway.protocol.wire import loads
from tests.lab.double import Gateway, message

TOKEN = "lab-token"
SECONDS = 60  # for anything that a test waits for, on a crowded machine too


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True)
class Lab:
    """A running jupyter_server with ``--gateway-url``."""

    port: int
    gateway_port: int
    log: Path

    async def rest(self, method: str, path: str, **body: Any) -> Any:
        request = HTTPRequest(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            body=json.dumps(body) if method == "POST" else None,
            headers={"Authorization": f"token {TOKEN}"},
            request_timeout=SECONDS,
        )
        response = await AsyncHTTPClient().fetch(request)
        return json.loads(response.body) if response.body else None

    async def page(self, kernel_id: str, session_id: str | None = None, protocol: str | None = ws.V1) -> Page:
        session_id = session_id or uuid.uuid4().hex
        url = f"ws://127.0.0.1:{self.port}/api/kernels/{kernel_id}/channels?session_id={session_id}"
        request = HTTPRequest(url, headers={"Authorization": f"token {TOKEN}"})
        socket = await websocket_connect(request, subprotocols=[protocol] if protocol else None, max_message_size=1 << 30)
        return Page(socket, session_id)


class Page:
    """What a browser is to the Lab server."""

    def __init__(self, socket: WebSocketClientConnection, session_id: str) -> None:
        self.socket, self.session_id = socket, session_id
        self.v1 = socket.selected_subprotocol == ws.V1

    def send(self, msg_type: str, content: dict[str, Any], channel: str = "shell", buffers: tuple[bytes, ...] = ()) -> None:
        parts = message(msg_type, content, session=self.session_id, buffers=buffers)
        frame = ws.encode_v1(channel, parts) if self.v1 else ws.encode_legacy(channel, parts)
        self.socket.write_message(frame, binary=isinstance(frame, bytes))

    async def read(self) -> tuple[str, dict[str, Any], list[bytes]] | None:
        """``(message type, content, buffers)``, or None once the socket has closed."""
        frame = await asyncio.wait_for(_read(self.socket), SECONDS)
        if frame is None:
            return None
        _, parts = (ws.decode_v1 if self.v1 else ws.decode_legacy)(frame)  # type: ignore[arg-type]
        return loads(parts[0])["msg_type"], loads(parts[3]), [bytes(part) for part in parts[4:]]

    async def until(self, msg_type: str) -> tuple[dict[str, Any], list[bytes]]:
        while (said := await self.read()) is not None:
            if said[0] == msg_type:
                return said[1], said[2]
        raise AssertionError(f"closed before any {msg_type}, code {self.socket.close_code}")

    async def lines(self, last: str) -> list[str]:
        """All text up to and including ``last``."""
        texts: list[str] = []
        while last not in texts:
            texts.append((await self.until("stream"))[0]["text"])
        return texts

    def vanish(self) -> None:
        """As when the network goes: no closing handshake."""
        assert self.socket.protocol is not None
        self.socket.protocol._abort()


async def _read(socket: WebSocketClientConnection) -> str | bytes | None:
    return await socket.read_message()


async def eventually(true: Callable[[], Any]) -> Any:
    """Wait for a fact that the other process brings about."""
    end = time.monotonic() + SECONDS
    while not (value := true()):
        assert time.monotonic() < end, "it never came about"
        await asyncio.sleep(0.01)
    return value


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    config = root / "config.py"
    port, gateway_port = free_port(), free_port()
    config.write_text(f"""
c = get_config()
c.IdentityProvider.token = {TOKEN!r}
c.GatewayClient.url = "http://127.0.0.1:{gateway_port}"
c.ElasticGatewayConnection.notice_after = 0.3
c.ElasticGatewayConnection.gone_after = 0.3
c.ElasticGatewayConnection.outbox_bytes = 1 << 20
c.ElasticGatewayMappingKernelManager.answer_within = 2
""")
    log = root / "log"
    command = [sys.executable, "-m", "jupyter_server", f"--config={config}", f"--port={port}", "--ServerApp.port_retries=0", "--no-browser"]
    command += ["--allow-root", f"--ServerApp.root_dir={root}"]
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        for _ in range(SECONDS * 10):
            assert server.poll() is None, log.read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api").close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail(f"the Lab server does not answer: {log.read_text()}")
        yield Lab(port, gateway_port, log)
    finally:
        server.terminate()
        server.wait(SECONDS)


@pytest.fixture
def story(lab: Lab) -> Callable[..., None]:
    """Runs ``story(lab, gateway)`` with a gateway that was started for it and is killed after."""

    def run(tell: Callable[[Lab, Gateway], Coroutine[Any, Any, None]], protocol: str | None = ws.ELASTIC) -> None:
        async def told() -> None:
            gateway = Gateway(lab.gateway_port, protocol)
            gateway.start()
            try:
                await tell(lab, gateway)
            finally:
                if gateway.server is not None:
                    await gateway.kill()

        asyncio.run(told())

    return run


async def start_kernel(lab: Lab, gateway: Gateway) -> Any:
    model = await lab.rest("POST", "/api/kernels", name="double")
    return gateway.kernels[model["id"]]
