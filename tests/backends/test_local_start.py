"""A supervisor that dies as it starts, and a place in the queue that goes with it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from gateway.backends.local import LocalMachine
from gateway.backends.processes import Identity
from gateway.protocol.errors import LaunchError
from gateway.protocol.model import Spec
from gateway.settings import ElasticGateway, LocalBackend, SimulatedGpu

SPEC = Spec("k", ["true"], {}, "/", "key", owner="gateway")


def machine(folder: Path, **settings: int) -> LocalMachine:
    return LocalMachine(ElasticGateway(), LocalBackend(runtime_dir=str(folder), **settings), SimulatedGpu())


def test_a_supervisor_that_is_killed_before_it_listens_is_told_with_the_signal_and_what_to_do(tmp_path, monkeypatch):
    deadly = tmp_path / "python"
    deadly.write_text("#!/bin/sh\nkill -9 $$\n")
    deadly.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(deadly))
    with pytest.raises(LaunchError, match=r"killed by SIGKILL \(.*memory\?\)\. Start the kernel again"):
        asyncio.run(machine(tmp_path / "r").start(SPEC))


def test_a_start_that_failed_gives_its_turn_away(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/not/there")

    async def story() -> None:
        local = machine(tmp_path / "r", starts_at_once=1)
        for _ in range(2):
            await asyncio.wait_for(local.turn(SPEC, print), 30)
            with pytest.raises(LaunchError, match="could not be started"):
                await local.start(SPEC)
        assert not list(local.places.starts.iterdir())

    asyncio.run(story())


def test_a_start_that_waits_is_kept_until_its_turn_is_over_or_it_is_withdrawn_and_read_in_order(tmp_path):
    async def story() -> None:
        local = machine(tmp_path / "r", starts_at_once=1)
        await local.turn(SPEC, print)
        specs = [Spec(name, ["true"], {"A": name}, "/", "key", owner="gateway") for name in ("z", "a")]
        waiting = []
        for spec in specs:
            waiting.append(asyncio.create_task(local.turn(spec, print)))
            while spec not in await local.unfinished():
                await asyncio.sleep(0.01)
        assert await machine(tmp_path / "r").unfinished() == specs, "what the next gateway finds"
        (local.places.starts / "torn.json").write_text("{")
        assert await local.unfinished() == specs, "a torn file hides no other"
        (local.places.starts / "torn.json").unlink()
        waiting[0].cancel()
        await asyncio.wait({waiting[0]})
        assert await local.unfinished() == specs[1:]
        await local.close()  # the gateway stops
        waiting[1].cancel()
        await asyncio.wait({waiting[1]})
        assert await machine(tmp_path / "r").unfinished() == specs[1:], "the next gateway goes on with it"

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_start_that_is_not_wanted_any_more_is_told_to_end_before_anything_else(tmp_path, monkeypatch):
    """Should the gateway be killed at that moment, nothing is left."""
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 100\n")
    slow.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(slow))
    told = []

    def descendants(pid: int) -> set[Identity]:
        deadline = time.monotonic() + 10
        while (alive := Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z") and time.monotonic() < deadline:
            time.sleep(0.01)
        told.append(not alive)
        return set()

    monkeypatch.setattr("gateway.backends.processes.descendants", descendants)

    async def story() -> None:
        local = machine(tmp_path / "r")
        start = asyncio.create_task(local.start(SPEC))
        while not list(local.places.kernels.glob("*/supervisor.log")):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        start.cancel()
        await asyncio.wait({start})
        assert not list(local.places.kernels.iterdir())

    asyncio.run(asyncio.wait_for(story(), 60))
    assert all(told)
