"""A machine of one's own for a test: configuration, kernelspecs and runtime folder of its own, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from gateway.backends.places import Places
from gateway.backends.processes import started
from gateway.broker.client import request
from gateway.protocol.errors import BrokerUnavailable

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 60.0


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("c", "d", "r"):
            (root / name).mkdir(mode=0o700)
        self.env = {"JUPYTER_CONFIG_DIR": str(root / "c"), "JUPYTER_DATA_DIR": str(root / "d"), "JUPYTER_RUNTIME_DIR": str(root / "r")}
        self.kernelspec("elastic", json.loads((REPOSITORY / "kernelspecs/elastic-python/kernel.json").read_text()))
        self.configure(ElasticGateway={"simulated_gpus": 1}, SimulatedGpu={"park_seconds": 0.05}, Leases={"min_hold": 0.0})

    def configure(self, **config: Any) -> None:
        """The machine's configuration file, whole."""
        (self.root / "c/jupyter_elastic_gateway_config.json").write_text(json.dumps(config))

    def kernelspec(self, name: str, spec: dict[str, Any]) -> None:
        folder = self.root / "d/kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.json").write_text(json.dumps(spec))

    def variant(self, name: str, **changes: Any) -> None:
        """A kernelspec like ``elastic`` but for some fields; metadata is merged."""
        spec = json.loads((self.root / "d/kernels/elastic/kernel.json").read_text())
        spec["metadata"] |= changes.pop("metadata", {})
        self.kernelspec(name, {**spec, **changes})

    @property
    def places(self) -> Places:
        return Places(str(self.root / "r/elastic"))

    def supervisors(self) -> list[dict[str, Any]]:
        found = []
        for path in (self.root / "r/elastic/k").glob("*/supervisor.json"):
            try:
                found.append(json.loads(path.read_text()))
            except OSError:
                continue
        return found

    def broker(self) -> dict[str, Any]:
        return request(self.places, "status")

    def run(self, code: str, *args: str, **kwargs: Any) -> subprocess.Popen[str]:
        """Another process of this user."""
        env = {**os.environ, **self.env}
        return subprocess.Popen([sys.executable, "-c", code, *args], env=env, cwd=self.root, text=True, stdout=subprocess.PIPE, **kwargs)

    def clean(self) -> None:
        for info in self.supervisors():
            if started(info["pid"]) == info["started"]:
                os.kill(info["pid"], signal.SIGTERM)
        try:
            os.kill(self.broker()["pid"], signal.SIGTERM)
        except (BrokerUnavailable, ProcessLookupError):
            pass
        try:
            until(lambda: not self.supervisors())
        finally:
            shutil.rmtree(self.root, ignore_errors=True)


def until(holds: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait for what other processes do; the patience is for a machine under load."""
    end = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return value


@contextmanager
def kernel(name: str = "elastic", **kwargs: Any) -> Iterator[Any]:
    """A blocking manager and client of jupyter_client's own."""
    manager = KernelManager(kernel_name=name, **kwargs.pop("manager", {}))
    manager.start_kernel(**kwargs)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client: Any, code: str) -> str:
    """What a cell prints; an error in it is an error here."""
    printed: list[str] = []

    def heard(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=PATIENCE, output_hook=heard)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed).strip()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    found = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    for name, value in found.env.items():
        monkeypatch.setenv(name, value)
    yield found
    found.clean()
