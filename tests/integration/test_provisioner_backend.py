"""The local backend with real supervisors: started, found, ended, and cleared away whatever they died of."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.backends import local as local_module
from gateway.backends.local import LocalMachine, LocalSupervisor
from gateway.backends.processes import started
from gateway.protocol.errors import LaunchError, LaunchTimeout, SupervisorLost
from gateway.protocol.model import Spec
from gateway.settings import ElasticGateway, LocalBackend, SimulatedGpu
from tests.integration.machine import Machine, kernel, machine, run, until

__all__ = ["machine"]

PARENT = "import subprocess, time; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True); time.sleep(600)"


def backend(**local: Any) -> LocalMachine:
    return LocalMachine(ElasticGateway(simulated_gpus=1), LocalBackend(**local), SimulatedGpu())


def spec(kernel_id: str = "k1", code: str = "import time; time.sleep(600)") -> Spec:
    env = {"PATH": os.environ["PATH"]}
    pid = os.getpid()
    return Spec(kernel_id, ["python3", "-c", code], env, "/tmp", "key", owner_pid=pid, owner_started=started(pid))


def folders(place: LocalMachine) -> list[Path]:
    return list(place.places.kernels.iterdir())


def test_a_supervisor_is_started_found_and_ended(machine: Machine) -> None:
    async def story() -> None:
        place = backend()
        supervisor = await place.start(spec())
        assert supervisor.alive()
        assert not (supervisor.folder / "spec.json").exists(), "it holds the request's environment"
        assert (supervisor.folder.stat().st_mode & 0o777, (supervisor.folder / "supervisor.json").stat().st_mode & 0o777) == (0o700, 0o600)
        [found] = await place.find()
        assert (found.kernel_id, found.link_address, found.key) == ("k1", supervisor.link_address, "key")
        assert (await place.at(supervisor.place)).kernel_id == "k1"
        with pytest.raises(LaunchError, match="runs already"):
            await place.start(spec())
        await supervisor.end(5)
        assert not supervisor.alive()
        await supervisor.end(5)
        assert folders(place) == []
        with pytest.raises(SupervisorLost):
            await place.at(supervisor.place)
        with pytest.raises(SupervisorLost, match="runtime_dir"):
            await place.at("/etc")

    asyncio.run(story())


def test_a_kernel_that_will_not_end_is_killed_with_its_children(machine: Machine) -> None:
    code = "import signal; signal.signal(15, signal.SIG_IGN); " + PARENT

    async def story() -> None:
        place = backend()
        supervisor = await place.start(spec(code=code))
        child = int(until(lambda: (supervisor.folder / "kernel.log").read_text().strip()))
        os.kill(supervisor.identity[0], signal.SIGSTOP)  # it won't help either
        await supervisor.end(0.1)
        assert started(child) is None
        assert folders(place) == []

    asyncio.run(story())


def test_what_a_killed_supervisor_left_is_cleared_away(machine: Machine) -> None:
    async def story() -> None:
        place = backend()
        supervisor = await place.start(spec(code=PARENT))
        child = int(until(lambda: (supervisor.folder / "kernel.log").read_text().strip()))
        os.kill(supervisor.identity[0], signal.SIGKILL)
        until(lambda: not supervisor.alive())
        assert await place.find() == []
        assert started(child) is None
        assert folders(place) == []
        again = await place.start(spec())
        await again.end(5)

    asyncio.run(story())


def test_that_a_kernel_is_to_be_ended_is_seen_by_whoever_finds_it(machine: Machine) -> None:
    async def story() -> None:
        place = backend()
        supervisor = await place.start(spec())
        place.end_begins("nobody")
        assert [found.ending for found in await place.find()] == [False]
        place.end_begins("k1")
        assert [found.ending for found in await backend().find()] == [True]
        await supervisor.end(5)
        assert folders(place) == []
        again = await place.start(spec())
        assert [found.ending for found in await place.find()] == [False], "another kernel of that id"
        await again.end(5)

    asyncio.run(story())


def test_a_folder_that_is_being_prepared_is_left_alone_and_an_abandoned_one_is_not(machine: Machine) -> None:
    async def story() -> None:
        place = backend()
        folder = place.places.kernel("k1")
        folder.mkdir(mode=0o700)
        assert await place.find() == []
        assert folder.exists()
        old = time.time() - 2 * local_module.ABANDONED_SECONDS
        os.utime(folder, (old, old))
        assert await place.find() == []
        assert not folder.exists()

    asyncio.run(story())


def test_a_supervisor_that_fails_says_why(machine: Machine) -> None:
    async def story() -> None:
        place = backend()
        bad = spec()
        bad.argv = ["/no/such/kernel"]
        with pytest.raises(LaunchError, match="/no/such/kernel"):
            await place.start(bad)
        assert folders(place) == []

    asyncio.run(story())


def test_a_supervisor_that_never_listens_is_given_up_by_the_setting_that_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gateway/pod").mkdir(parents=True)
    for path in ("gateway/__init__.py", "gateway/pod/__init__.py"):
        (tmp_path / path).write_text("")
    (tmp_path / "gateway/pod/supervisor.py").write_text("import time; print('stuck', flush=True); time.sleep(600)")
    monkeypatch.setattr(local_module, "_PACKAGES", str(tmp_path))

    async def story() -> None:
        place = backend(launch_timeout=1.0)
        with pytest.raises(LaunchTimeout, match=r"(?s)1 seconds \(LocalBackend\.launch_timeout\).*stuck"):
            await place.start(spec())
        assert folders(place) == []

    asyncio.run(story())


def test_a_start_that_is_cancelled_leaves_nothing(machine: Machine) -> None:
    async def story() -> None:
        place = backend()
        starting = asyncio.ensure_future(place.start(spec()))
        while not folders(place):
            await asyncio.sleep(0.001)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert folders(place) == []

    asyncio.run(story())


def test_a_manager_sees_that_its_supervisor_was_killed_and_can_start_anew(machine: Machine) -> None:
    with kernel() as (manager, client):
        run(client, "x = 1")
        os.kill(machine.supervisors()[0]["pid"], signal.SIGKILL)
        until(lambda: not manager.is_alive())
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=60)
        assert run(client, "print('x' in dir())") == "False"


def test_a_torn_file_is_no_supervisor(machine: Machine) -> None:
    folder = backend().places.kernel("k1")
    folder.mkdir(mode=0o700)
    for text in ("", "{", "[]", '{"kernel_id": 1}'):
        (folder / "supervisor.json").write_text(text)
        with pytest.raises(SupervisorLost):
            LocalSupervisor(folder)
    (folder / "supervisor.json").unlink()
