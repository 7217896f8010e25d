"""Supervisors that are forked from one prepared process: to everybody else as if each had been started anew."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.backends import nursery as nursery_module
from gateway.backends.local import LocalMachine, LocalSupervisor, supervisor_env
from gateway.backends.nursery import Nursery
from gateway.backends.processes import started
from gateway.protocol.errors import LaunchError
from gateway.protocol.wire import dumps
from tests.integration.machine import Machine, kernel, machine, run, until
from tests.integration.test_provisioner_backend import backend, folders, spec

__all__ = ["machine"]

OWNER = """
import os, sys, time
from pathlib import Path
from gateway.backends.local import supervisor_env
from gateway.backends.nursery import Nursery
nursery = Nursery()
nursery.begin(supervisor_env())
while not nursery.ready:
    time.sleep(0.01)
log, (_, report) = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT), os.pipe()
born = nursery.fork([sys.executable, "-P", "-m", "gateway.pod.supervisor", sys.argv[1], "{report}"], supervisor_env(), log, report)
print(born.pid, nursery._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    nursery.begin(supervisor_env())
    until(lambda: nursery.ready)
    yield nursery
    nursery.close()


@pytest.fixture
def place(machine: Machine) -> Iterator[LocalMachine]:
    """A machine that forks its supervisors from the first."""
    place = backend()
    place._nursery.begin(supervisor_env())
    until(lambda: place._nursery.ready)
    yield place
    place._nursery.close()


def folder(tmp_path: Path, **changes: Any) -> str:
    folder = tmp_path / f"k{len(list(tmp_path.iterdir()))}"
    folder.mkdir(mode=0o700)
    (folder / "spec.json").write_bytes(dumps(replace(spec(), **changes).to_json()))
    return str(folder)


def descriptors(pid: int) -> set[str]:
    """What its descriptors lead to. Sockets come and go, while ZMQ tries to reach the kernel."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(link))
    return found


def seen(pid: int) -> dict[str, Any]:
    """A process as others see it."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    kept = ("Name", "Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp")
    files = (link.partition(":")[0] if ":[" in link else Path(link).name for link in descriptors(pid) if not link.startswith("socket:"))
    return {
        **{name: status[name].strip() for name in kept}, "session": os.getsid(pid) == pid, "group": os.getpgid(pid) == pid,
        "cwd": os.readlink(proc / "cwd"), "exe": os.readlink(proc / "exe"), "oom": (proc / "oom_score_adj").read_text(),
        "limits": (proc / "limits").read_text(), "nice": os.getpriority(os.PRIO_PROCESS, pid),
        "files": sorted(files),
    }  # fmt: skip


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def begin(nursery: Nursery | None, folder: str, env: dict[str, str]) -> tuple[Any, int]:
    """A supervisor, and where it reports."""
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", "gateway.pod.supervisor", folder]
    with open(f"{folder}/supervisor.log", "wb") as log:
        if nursery is not None:
            process: Any = nursery.fork([*command, "{report}"], env, log.fileno(), writing)
        else:
            process = subprocess.Popen(
                [*command, str(writing)], cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writing],
                start_new_session=True,
            )  # fmt: skip
    os.close(writing)
    return process, reading


def test_it_looks_to_others_like_one_that_was_started_anew(nursery: Nursery, tmp_path: Path) -> None:
    pictures = []
    for source in (None, nursery):
        at = folder(tmp_path)
        process, reading = begin(source, at, supervisor_env())
        assert os.read(reading, 100) == b"ready\n"
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert command[:-1] == [os.fsencode(word) for word in (sys.executable, "-P", "-m", "gateway.pod.supervisor", at)]
        assert Path(f"/proc/{process.pid}/fd/{int(command[-1])}").exists(), "it names the descriptor on which it reports"
        pictures.append(seen(process.pid))
        if source is not None:
            shared = descriptors(process.pid) & descriptors(source._process.pid)
            assert not [link for link in shared if link.startswith(("socket:", "pipe:"))], "it was handed something that is the nursery's"
        assert json.loads(Path(at, "supervisor.json").read_text())["started"] == started(process.pid)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
        assert not Path(at).exists()
        os.close(reading)
    assert pictures[0] == pictures[1]


def test_its_environment_is_the_one_that_it_was_given(nursery: Nursery, tmp_path: Path) -> None:
    env = {**supervisor_env(), "GIVEN": "a=b\nc"}
    code = "import os, time; open('said', 'w').write(os.environ.get('GIVEN', '')); time.sleep(600)"
    at = folder(tmp_path, argv=["python3", "-c", code], inherit_env=True, cwd=str(tmp_path))
    process, reading = begin(nursery, at, env)
    until(lambda: (tmp_path / "said").exists() and (tmp_path / "said").read_text() == "a=b\nc")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 0
    os.close(reading)


def test_how_it_ended_is_known_to_who_started_it(nursery: Nursery, tmp_path: Path) -> None:
    failing, reading = begin(nursery, folder(tmp_path, argv=["/no/such/kernel"]), supervisor_env())
    assert b"/no/such/kernel" in os.read(reading, 1000)
    assert failing.wait(60) == 1
    os.close(reading)
    killed, reading = begin(nursery, folder(tmp_path), supervisor_env())
    with pytest.raises(subprocess.TimeoutExpired):
        killed.wait(0)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(60) == -signal.SIGKILL
    os.close(reading)


def test_a_killed_owner_takes_what_it_forked_from_along_and_no_supervisor(tmp_path: Path) -> None:
    at = folder(tmp_path)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, at], stdout=subprocess.PIPE, text=True)
    supervisor, forked_from = map(int, owner.stdout.readline().split())
    until(lambda: Path(at, "supervisor.json").exists())
    birth = started(forked_from)
    owner.kill()
    owner.wait()
    until(lambda: started(forked_from) != birth)
    assert LocalSupervisor(Path(at)).alive()
    os.kill(supervisor, signal.SIGTERM)
    until(lambda: not Path(at).exists())


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_where_it_is_killed_or_stopped_nothing_is_started_and_the_next_one_is_begun(
    nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: int
) -> None:
    monkeypatch.setattr(nursery_module, "PATIENCE", 0.2)
    nursery.close()
    nursery = Nursery()
    nursery.begin(supervisor_env())
    until(lambda: nursery.ready)
    old = nursery._process
    os.kill(old.pid, signum)
    at = folder(tmp_path)
    process, reading = begin(nursery, at, supervisor_env())
    assert process is None
    assert os.read(reading, 100) == b""
    assert Path(at, "spec.json").exists(), "nobody has read it"
    assert old.poll() is not None
    nursery.begin(supervisor_env())
    until(lambda: nursery.ready)
    process, second = begin(nursery, at, supervisor_env())
    assert os.read(second, 100) == b"ready\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 0
    nursery.close()
    os.close(reading)
    os.close(second)


def test_where_there_can_be_none_supervisors_are_started_as_ever(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        place = backend()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/bin/false")
            await asyncio.to_thread(place._nursery.begin, supervisor_env())
            await asyncio.to_thread(until, lambda: not place._nursery.ready and place._nursery._process is None)
        supervisors = [await place.start(spec(f"k{n}")) for n in range(3)]
        assert place._nursery._process is None
        for supervisor in supervisors:
            assert supervisor.alive()
            await supervisor.end(5)

    asyncio.run(story())


def test_only_who_starts_a_second_one_forks(machine: Machine) -> None:
    async def story() -> None:
        place = backend()
        first = await place.start(spec("k1"))
        assert place._nursery._process is None
        second = await place.start(spec("k2"))
        await asyncio.to_thread(until, lambda: place._nursery.ready)
        third = await place.start(spec("k3"))
        assert [parent(each.identity[0]) for each in (first, third)] == [os.getpid(), place._nursery._process.pid]
        assert {each.kernel_id for each in await place.find()} == {"k1", "k2", "k3"}
        await place.close()
        assert third.alive()
        for each in (first, second, third):
            await each.end(5)
            assert not each.alive()

    asyncio.run(story())
    assert machine.supervisors() == []


def test_a_forked_one_that_fails_says_why(place: LocalMachine) -> None:
    async def story() -> None:
        bad = spec()
        bad.argv = ["/no/such/kernel"]
        with pytest.raises(LaunchError, match="/no/such/kernel"):
            await place.start(bad)
        assert folders(place) == []

    asyncio.run(story())


def test_a_forked_start_that_is_cancelled_leaves_nothing(place: LocalMachine) -> None:
    async def story() -> None:
        starting = asyncio.ensure_future(place.start(spec()))
        while not folders(place):
            await asyncio.sleep(0.001)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert folders(place) == []

    asyncio.run(story())


def test_a_supervisor_that_is_just_being_forked_is_not_taken_for_an_abandoned_one(place: LocalMachine) -> None:
    async def story() -> None:
        supervisor = await place.start(spec())
        (supervisor.folder / "supervisor.json").rename(supervisor.folder / "aside")
        os.utime(supervisor.folder, (0, 0))
        assert await place.find() == []
        assert supervisor.folder.exists(), "its command line names the folder"
        (supervisor.folder / "aside").rename(supervisor.folder / "supervisor.json")
        await supervisor.end(5)

    asyncio.run(story())


def test_papermill_and_the_like_fork_nothing(machine: Machine) -> None:
    with kernel(), kernel() as (_, client):
        assert run(client, "print(6 * 7)") == "42"
        assert [parent(info["pid"]) for info in machine.supervisors()] == [os.getpid()] * 2
