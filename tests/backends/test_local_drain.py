"""A machine that an administrator has taken out of service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.backends.local import LocalMachine
from gateway.protocol.errors import LaunchError
from gateway.protocol.model import Spec
from gateway.settings import ElasticGateway, LocalBackend, SimulatedGpu


def test_a_drained_machine_starts_nothing_and_remembers_it(tmp_path: Path) -> None:
    def machine() -> LocalMachine:
        return LocalMachine(ElasticGateway(), LocalBackend(runtime_dir=str(tmp_path)), SimulatedGpu())

    machine().drain({"local"})
    assert machine().drained == {"local"}
    with pytest.raises(LaunchError, match="drain local --off"):
        asyncio.run(machine().start(Spec("k", ["true"], {}, "/", "key")))
    machine().drain(set())
    assert not machine().drained
