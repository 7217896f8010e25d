"""A real gateway process, and what a browser is to it, for the integration tests."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests
import websocket

from gateway.protocol import websocket as ws
from gateway.protocol.wire import dumps, loads
from tests.integration.machine import PATIENCE, Machine, until

GPU = "%%gpu\n"


class Gateway:
    """``jupyter elastic-gateway`` on a free port of the loopback address. ``settings``: as on the command line, without the dashes."""

    program = ("-m", "gateway.cli")

    def __init__(self, machine: Machine, *settings: str, token: str | None = None, port: int | None = None) -> None:
        self.machine, self.settings = machine, settings
        self.token = secrets.token_hex() if token is None else token
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.headers = {"Authorization": f"token {self.token}"} if self.token else {}
        self.log_file = machine.root / "gateway.log"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        config = self.machine.root / "c/jupyter_elastic_gateway_config.py"
        config.write_text(self.configuration())
        argv = [sys.executable, *self.program, *(f"--{setting}" for setting in self.settings)]
        env = {**os.environ, **self.machine.env, "SECRET_OF_THE_GATEWAY": "hush"}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(argv, env=env, cwd=self.machine.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self.process.poll() is not None or self.answers())
        return self.process

    def configuration(self) -> str:
        return f"c.IdentityProvider.token = {self.token!r}\nc.ServerApp.allow_root = True\nc.ServerApp.port = {self.port}\n"

    def answers(self) -> bool:
        with suppress(requests.ConnectionError):
            return requests.get(f"{self.url}/api", timeout=PATIENCE).ok
        return False

    def stop(self, signum: int = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(PATIENCE)

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def call(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        kwargs.setdefault("headers", self.headers)
        return requests.request(method, self.url + path, timeout=PATIENCE, **kwargs)

    def gpu(self) -> dict[str, Any]:
        return self.call("GET", "/api/gpu").json()

    def kernel(self, name: str = "elastic", **env: str) -> Kernel:
        response = self.call("POST", "/api/kernels", json={"name": name, "env": env})
        assert response.status_code == 201, response.text
        return Kernel(self, response.json()["id"])


@dataclass
class Kernel:
    gateway: Gateway
    id: str
    browsers: list[Browser] = field(default_factory=list)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *exc: object) -> None:
        for browser in self.browsers:
            browser.close()
        self.call("DELETE")

    def call(self, method: str, path: str = "", **kwargs: Any) -> requests.Response:
        return self.gateway.call(method, f"/api/kernels/{self.id}{path}", **kwargs)

    @property
    def state(self) -> str:
        response = self.call("GET")
        return response.json()["execution_state"] if response.ok else str(response.status_code)

    @property
    def lease(self) -> dict[str, Any]:
        """As the gateway shows it; of a kernel that it doesn't show yet nothing is so."""
        starting = {"phase": "", "gpus": [], "executing": False}
        return next((lease for lease in self.gateway.gpu()["leases"] if lease["kernel_id"] == self.id), starting)

    def open(self, **kwargs: Any) -> Browser:
        browser = Browser(self.gateway, self.id, **kwargs)
        self.browsers.append(browser)
        return browser


@dataclass(frozen=True)
class Cell:
    """What became of a cell."""

    out: str
    err: str
    status: str
    ename: str
    evalue: str
    data: list[dict[str, Any]]


class Browser:
    """One websocket, read by a thread; ``messages`` are all that have come."""

    def __init__(
        self, gateway: Gateway, kernel_id: str, session: str | None = None, protocol: str | None = ws.V1, after: int | None = None,
        read: bool = True, token: bool = True,
    ) -> None:  # fmt: skip
        self.session = session or uuid.uuid4().hex
        self.protocol, self.messages, self.closed = protocol, [], None
        self.numbers: list[tuple[int, ...]] = []  # of a client of ours: kind and numbers of each frame
        self._news, self._m = threading.Condition(), 0
        query = f"session_id={self.session}" + ("" if after is None else f"&after={after}")
        self.socket = websocket.create_connection(
            f"{gateway.url.replace('http', 'ws', 1)}/api/kernels/{kernel_id}/channels?{query}",
            header=gateway.headers if token else {}, subprotocols=[protocol] if protocol else None, suppress_origin=True,
            skip_utf8_validation=True, sockopt=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)], timeout=PATIENCE,
        )  # fmt: skip
        self.socket.settimeout(None)
        if read:
            threading.Thread(target=self._read, daemon=True).start()
        if protocol == ws.ELASTIC:  # go on after what the far end has of ours
            with self._news:
                assert self._news.wait_for(lambda: self.numbers, PATIENCE)
            self._m = self.numbers[0][3]

    def _read(self) -> None:
        try:
            while True:
                opcode, data = self.socket.recv_data()
                if opcode == websocket.ABNF.OPCODE_CLOSE:
                    self._note(closed=(int.from_bytes(data[:2], "big"), data[2:].decode()))
                    return
                self._frame(data if opcode == websocket.ABNF.OPCODE_BINARY else data.decode())
        except (OSError, websocket.WebSocketException) as exc:
            self._note(closed=(0, repr(exc)))

    def _frame(self, frame: bytes | str) -> None:
        number = 0
        if self.protocol == ws.ELASTIC:
            kind, numbers, body = ws.decode_elastic(frame)
            with self._news:
                self.numbers.append((kind, *numbers))
                self._news.notify_all()
            if body is None:
                return
            number = numbers[0]
            if number:
                self.socket.send_binary(ws.encode_ack(number))
            frame = body
        channel, parts = ws.decode_v1(frame) if self.protocol else ws.decode_legacy(frame)
        header, parent, _, content, *buffers = map(bytes, parts)
        known = loads(header)
        self._note(
            message={
                "channel": channel, "type": known["msg_type"], "parent": loads(parent).get("msg_id"), "content": loads(content),
                "buffers": buffers, "n": number, "header": known,
            }
        )  # fmt: skip

    def _note(self, message: dict[str, Any] | None = None, closed: tuple[int, str] | None = None) -> None:
        with self._news:
            if message is not None:
                self.messages.append(message)
            self.closed = self.closed or closed
            self._news.notify_all()

    def wait(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE) -> dict[str, Any]:
        """The first message, had or to come, for which ``wanted`` holds."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found.extend(message for message in self.messages if wanted(message))
            return bool(found) or self.closed is not None

        with self._news:
            assert self._news.wait_for(look, seconds), f"it never came; there was {[m['type'] for m in self.messages][-20:]}"
        assert found, f"the socket was closed: {self.closed}"
        return found[0]

    def until_closed(self) -> tuple[int, str]:
        with self._news:
            assert self._news.wait_for(lambda: self.closed is not None, PATIENCE), "it stays open"
        return self.closed

    def send(self, msg_type: str, content: dict[str, Any], channel: str = "shell", buffers: tuple[bytes, ...] = (), **header: Any) -> str:
        head = {"msg_id": uuid.uuid4().hex, "msg_type": msg_type, "session": self.session, "username": "", "version": "5.3"} | header
        self.send_parts([dumps(head), b"{}", b"{}", dumps(content), *buffers], channel)
        return head["msg_id"]

    def send_parts(self, parts: list[bytes], channel: str = "shell") -> None:
        if self.protocol == ws.ELASTIC:
            self._m += 1
            self.send_raw(ws.encode_message(self._m, channel, parts))
        else:
            self.send_raw((ws.encode_v1 if self.protocol else ws.encode_legacy)(channel, parts))

    def send_raw(self, frame: str | bytes) -> None:
        (self.socket.send_binary if isinstance(frame, bytes) else self.socket.send)(frame)

    def ask(self, msg_type: str, content: dict[str, Any] | None = None, seconds: float = PATIENCE, **kwargs: Any) -> dict[str, Any]:
        """A request's reply."""
        msg_id = self.send(msg_type, content or {}, **kwargs)
        reply = msg_type.replace("_request", "_reply")
        return self.wait(lambda m: m["type"] == reply and m["parent"] == msg_id, seconds)

    def begin(self, code: str, **content: Any) -> str:
        fields = {"silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
        return self.send("execute_request", {"code": code, **fields, **content})

    def finish(self, msg_id: str, seconds: float = PATIENCE) -> Cell:
        """Until reply and idle are there."""
        reply = self.wait(lambda m: m["type"] == "execute_reply" and m["parent"] == msg_id, seconds)
        self.wait(lambda m: m["parent"] == msg_id and m["content"].get("execution_state") == "idle", seconds)
        mine = [m for m in self.messages if m["parent"] == msg_id]

        def text(name: str) -> str:
            return "".join(m["content"]["text"] for m in mine if m["type"] == "stream" and m["content"]["name"] == name)

        data = [m["content"]["data"] for m in mine if m["type"] in ("display_data", "execute_result", "update_display_data")]
        error = next((m["content"] for m in mine if m["type"] == "error"), {})
        return Cell(text("stdout"), text("stderr"), reply["content"]["status"], error.get("ename", ""), error.get("evalue", ""), data)

    def run(self, code: str, seconds: float = PATIENCE) -> Cell:
        return self.finish(self.begin(code), seconds)

    def states(self) -> list[str]:
        return [m["content"]["execution_state"] for m in self.messages if m["type"] == "status"]

    def drop(self) -> None:
        """Like a network that is gone: no close frame."""
        with suppress(OSError):
            self.socket.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError, websocket.WebSocketException):
            self.socket.close(timeout=0)


def end(gateway: Gateway) -> None:
    """With all of its kernels."""
    gateway.call("POST", "/api/shutdown", json={"kernels": True})
    gateway.process.wait(PATIENCE)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
