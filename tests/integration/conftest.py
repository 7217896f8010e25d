"""One gateway for all tests that leave it as they found it; starting one takes seconds."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.machine import Machine
from tests.integration.serving import Gateway, end

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


@pytest.fixture
def own_machine() -> Iterator[Machine]:
    """For tests that kill what others would need."""
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    yield machine
    machine.clean()
