"""JupyterLab in headless Chromium, in front of a gateway that tests may kill and start again."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.lab import COMMON, JupyterLab, JupyterNotebook, answers, start
from tests.browser.pages import SECONDS, Notebook, browser, chromium, visit  # noqa: F401 - fixtures
from tests.lab.conftest import free_port


class Servers:
    """A gateway with one simulated GPU and the JupyterLab in front of it; ``more``: lines of its configuration."""

    def __init__(self, root: Path, more: str = "") -> None:
        self.root = root
        self.gateway_port = free_port()
        self.gateway: subprocess.Popen[bytes] | None = None
        (root / "gateway_config.py").write_text(f"""{COMMON}
c.ServerApp.port = {self.gateway_port}
c.ElasticGateway.simulated_gpus = 1
c.SimulatedGpu.park_seconds = 0.1
c.Leases.min_hold = 0
c.LocalBackend.runtime_dir = {str(root / "k")!r}
{more}
""")
        self.start_gateway()
        self.lab = JupyterLab(root, f"http://127.0.0.1:{self.gateway_port}")

    def start_gateway(self) -> None:
        self.gateway = start(self.root, "gateway", "gateway.cli")
        answers(self.root, self.gateway, "gateway", self.gateway_port)

    def ensure_gateway(self) -> None:
        if self.gateway is None or self.gateway.poll() is not None:
            self.start_gateway()

    def kill_gateway(self) -> None:
        assert self.gateway is not None
        self.gateway.kill()
        self.gateway.wait()

    def end(self) -> None:
        assert self.gateway is not None
        self.lab.end()
        self.ensure_gateway()
        shutdown = [sys.executable, "-m", "gateway.cli", "shutdown", "--kernels", f"--url=http://127.0.0.1:{self.gateway_port}"]
        subprocess.run(shutdown, check=True, timeout=SECONDS)
        self.gateway.wait(SECONDS)


@contextmanager
def serving(more: str = "") -> Iterator[Servers]:
    chromium()
    root = Path(tempfile.mkdtemp(prefix="eg-b-", dir="/tmp"))  # short, as sockets will lie below
    running = Servers(root, more)
    yield running
    running.end()
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with serving() as running:
        yield running


@pytest.fixture
def notebook(servers: Servers, visit: Callable[..., Notebook], request: pytest.FixtureRequest) -> Callable[..., Notebook]:  # noqa: F811
    """``notebook("print(1)", "2")`` opens a new notebook with these cells; its kernel is up."""
    made: list[int] = []

    def make(*cells: str) -> Notebook:
        servers.ensure_gateway()
        made.append(0)
        return visit(servers.lab.new(f"{request.node.name}-{len(made)}", cells))

    return make


@pytest.fixture(scope="module")
def classic(servers) -> Iterator[JupyterNotebook]:
    pytest.importorskip("notebook", minversion="7", reason="Notebook 7 is not installed; `pip install notebook` brings it")
    root = Path(tempfile.mkdtemp(prefix="eg-b-", dir="/tmp"))
    found = JupyterNotebook(root, f"http://127.0.0.1:{servers.gateway_port}")
    yield found
    found.end()
    shutil.rmtree(root)
