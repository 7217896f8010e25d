"""A gateway's REST face in a thread, and the file by which the command line finds it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.cli import main

TOKEN = "the-token"
BUSY, IDLE = "0b3c1d2e-0000-4000-8000-000000000001", "0b3c9999-0000-4000-8000-000000000002"


_GPU = {"node": "local", "flavor": "h200", "memory_bytes": 150 * 10**9, "simulated": False, "rung": "anywhere"}
_LEASE = {"since": "2030-01-01T00:00:00+00:00", "idle_since": None, "ends_by": None, "parked_bytes": 0, "executing": False}

KERNELSPECS = {
    "default": "a100",
    "kernelspecs": {
        "python3": {"name": "python3", "spec": {"display_name": "Python 3", "language": "python", "metadata": {}}},
        "a100": {
            "name": "a100",
            "spec": {
                "display_name": "Python (A100)",
                "language": "python",
                "metadata": {"kernel_provisioner": {"provisioner_name": "elastic-provisioner", "config": {"gpus": 2, "profile": "big"}}},
            },
        },
    },
}


EXPLAINED = {
    "kernel_id": BUSY, "user": "ann", "groups": ["staff"], "kernelspec": "torch", "flavor": "h200", "smallest_holds": [],
    "settings": {
        "idle_timeout": {
            "value": 5.0, "level": "user", "name": "ann", "source": "/etc/policy.yaml, line 7",
            "over": [{"value": 120.0, "level": "site", "name": "", "source": "default"}],
        }
    },
}  # fmt: skip
USAGE = {
    "by": "user", "since": "1970-01-01T00:00:00Z", "until": "2030-01-01T00:00:00Z",
    "rows": [
        {"user": "ann", "cells": 3, "gpu_seconds_held": 100.0, "gpu_seconds_executed": 45.0, "gpu_seconds_saved": 7200.0, "cost": 0.07}
    ],
}  # fmt: skip


class FakeGateway(ThreadingHTTPServer):
    state: ClassVar[dict[str, Any]] = {
        "gpus": [{"uuid": "GPU-1", **_GPU}, {"uuid": "GPU-2", **_GPU}],
        "leases": [
            {
                **_LEASE,
                "kernel_id": BUSY,
                "user": "ann",
                "notebook": "train.ipynb",
                "phase": "HOLDING",
                "gpus": ["GPU-1"],
                "executing": True,
            },
            {
                **_LEASE,
                "kernel_id": IDLE,
                "user": "bob",
                "phase": "PARKED",
                "gpus": [],
                "parked_bytes": 3 * 10**9,
                "hold_until": "2100-01-01T00:00:00Z",
            },
        ],
        "queue": [{"kernel_id": IDLE, "user": "bob", "count": 1, "position": 1, "since": "2030-01-01T00:00:00+00:00"}],
        "drained": [],
        "generation": 3,
    }

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Face)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.asked: list[tuple[str, str, Any]] = []
        self.entered_with: set[str | None] = set()
        self.policy: dict[str, Any] = {"idle_timeout": 120.0, "max_hold": None}


class Face(BaseHTTPRequestHandler):
    server: FakeGateway

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        sent = json.loads(body) if body else None
        self.server.asked.append((self.command, self.path, sent))
        status, said = self.decide(sent)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def decide(self, sent: Any) -> tuple[int, Any]:
        self.server.entered_with.add(self.headers.get("Authorization"))
        if self.headers.get("Authorization") != f"token {TOKEN}":
            return 403, {"message": "Forbidden"}
        if self.path == "/api/gpu":
            return 200, self.server.state
        if self.path == "/api/gpu/policy":
            self.server.policy.update(sent or {})
            return 200, self.server.policy
        if self.path == f"/api/gpu/policy?kernel={BUSY}":
            return 200, EXPLAINED
        if self.path.startswith("/api/gpu/usage"):
            return 200, USAGE
        if self.path == f"/api/gpu/kernels/{BUSY}/release":
            return 409, {"message": "A cell runs; wait for its end.", "reason": "executing"}
        if self.path == "/api/kernelspecs":
            return 200, KERNELSPECS
        if self.path == "/api/gpu/nodes/local/drain":
            return 200, self.server.state
        if self.path == "/api/gpu/nodes/theirs/drain":
            return 403, {"message": "User is not authorized to write on resource: gpu.", "reason": "forbidden"}
        if self.path == "/api/shutdown":
            return 200, {"ended": 2 if sent["kernels"] else 0}
        return 200, self.server.state

    do_GET = do_POST = do_PATCH = answer

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[FakeGateway]:
    """A gateway that has left no file: as on another machine."""
    with serving() as server:
        yield server


@contextmanager
def serving() -> Iterator[FakeGateway]:
    server = FakeGateway()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def fake(stranger: FakeGateway, runtime: Path) -> FakeGateway:
    """A gateway of this user on this machine."""
    announce(stranger, runtime)
    return stranger


def announce(server: FakeGateway, runtime: Path, name: str = "jpserver-1.json") -> None:
    info = {"pid": os.getpid(), "url": server.url, "token": TOKEN, "port": server.server_port, "sock": "", "version": "2"}
    (runtime / name).write_text(json.dumps(info))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """``cli("leases", "--json")`` → exit status, what it printed, what it complained about."""

    def run(*argv: str) -> tuple[int, str, str]:
        try:
            status = main(list(argv))
        except SystemExit as exc:
            status = int(exc.code or 0)
        return status, *capsys.readouterr()

    return run
