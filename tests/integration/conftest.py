"""One gateway for all tests that leave it as they found it; starting one takes seconds."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.cuda import GIB, MIB, Node
from tests.integration.cuda_notebook import GPU, Notebook
from tests.integration.machine import Machine
from tests.integration.serving import Browser, Gateway, Kernel, end
from tests.integration.users import TOKENS, Someone, serve_users

DIES = {"display_name": "dies", "language": "python", "argv": ["python", "-c", "import sys; sys.exit('no such licence')"], "metadata": {}}


@pytest.fixture(scope="session")
def gateway_machine() -> Iterator[Machine]:
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    machine.kernelspec("dies", DIES)
    for name, seconds in (("slow", 2), ("endless", 600)):
        script = f"sleep {seconds}; exec {sys.executable} -m ipykernel_launcher -f $0"
        argv = ["bash", "-c", script, "{connection_file}"]
        machine.kernelspec(name, {"display_name": name, "language": "python", "argv": argv, "metadata": {}})
    yield machine
    machine.clean()


@pytest.fixture(scope="session")
def gateway(gateway_machine: Machine) -> Iterator[Gateway]:
    """With one simulated GPU, short waits, a token and one allowed origin."""
    found = Gateway(
        gateway_machine,
        "ServerApp.allow_origin=https://lab.example.com",
        "ElasticMappingKernelManager.allowed_envs=['ALLOWED']",
    )
    yield found
    if found.process.poll() is None:
        end(found)


@pytest.fixture(scope="module")
def kernel(gateway: Gateway) -> Iterator[Kernel]:
    """Ada's, for all tests of a module."""
    with gateway.kernel(KERNEL_USERNAME="ada") as found:
        yield found


@pytest.fixture
def browser(kernel: Kernel) -> Browser:
    return kernel.open()


@pytest.fixture
def own_machine() -> Iterator[Machine]:
    """For tests that kill what others would need."""
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    yield machine
    machine.clean()


@pytest.fixture(scope="module")
def site() -> Iterator[Gateway]:
    """Of several users; tests leave it as they found it."""
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    gateway = serve_users(machine)
    yield gateway
    if gateway.process.poll() is None:
        end(gateway)
    machine.clean()


@pytest.fixture
def ana(site: Gateway) -> Someone:
    return Someone(site, TOKENS["ana"])


@pytest.fixture
def bo(site: Gateway) -> Someone:
    return Someone(site, TOKENS["bo"])


@pytest.fixture
def ops(site: Gateway) -> Someone:
    return Someone(site, TOKENS["ops"])


@pytest.fixture
def lab(site: Gateway) -> Someone:
    return Someone(site, TOKENS["lab"])


# kernels on the double's machine


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Node]:
    node = Node(tmp_path, **{"memory": 2 * GIB, "context": 64 * MIB, **getattr(request, "param", {})})
    for name, value in node.env.items():
        monkeypatch.setenv(name, value)
    yield node
    node.close()


@pytest.fixture
def open_(node: Node) -> Iterator[Callable[..., Notebook]]:
    opened: list[Notebook] = []

    def open_(*kernel: Any, **env: str) -> Notebook:
        opened.append(Notebook(*kernel, **env))
        return opened[-1]

    yield open_
    for notebook in opened:
        notebook.supervised.end()


@pytest.fixture
def notebook(node: Node, open_: Callable[..., Notebook]) -> Notebook:
    """A kernel with 300 MiB on the GPU, and a mark in them."""
    notebook = open_()
    begin = f"import device; device.start(); m = device.Memory({300 * MIB}); m.write(b'kept', 12345)\n"
    assert notebook.run(GPU + begin + "print(device.device_uuid())", node.uuids[0]) == node.uuids[0]
    return notebook
