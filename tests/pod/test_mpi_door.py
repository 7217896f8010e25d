"""The door by which mpirun starts its own in other pods: one command, for whoever has the burst's key."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.burst.engines import keys
from gateway.burst.engines.spmd import free_port
from tests.integration.machine import until

ROOT = str(Path(__file__).parents[2])


def key(folder: Path) -> Path:
    folder.mkdir()
    for name, text in keys.make("mpi", "burst-1").items():
        (folder / name).write_text(text)
    return folder


class Door:
    def __init__(self, folder: Path) -> None:
        self.folder, self.port = key(folder), free_port()
        self.process = self._run("serve", str(self.folder), str(self.port))

    def call(self, *command: str, folder: Path | None = None) -> subprocess.Popen[str]:
        return self._run("call", str(folder or self.folder), str(self.port), "-x", "127.0.0.1", *command)

    def _run(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "gateway.pod.burst.mpi_door", *words]
        env = {**os.environ, "PYTHONPATH": ROOT}
        return subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    found = Door(tmp_path / "ours")
    yield found
    if found.process.poll() is None:
        found.process.kill()
    found.process.communicate()


def test_a_command_runs_as_ssh_would_run_it_and_its_words_and_its_code_come_back(door: Door) -> None:
    caller = door.call("WORD=said;export WORD;/bin/sh", "-c", '"echo $WORD; exit 7"')
    assert caller.communicate(timeout=60)[0] == "said\n" and caller.returncode == 7
    assert door.process.wait(60) == 0  # there is one command for each


def test_whoever_has_no_key_of_the_burst_runs_nothing(door: Door, tmp_path: Path) -> None:
    def connect() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", door.port)) as stranger:
                stranger.sendall(b'"touch there"\n')
            return True
        except ConnectionRefusedError:
            return False

    until(connect)
    mark = tmp_path / "there"
    caller = door.call("touch", str(mark), folder=key(tmp_path / "theirs"))
    caller.communicate(timeout=60)
    assert caller.returncode not in (0, None) and not mark.exists()
    caller = door.call("touch", str(mark))  # it is open still
    caller.communicate(timeout=60)
    assert caller.returncode == 0 and mark.exists()


def test_a_command_ends_when_nobody_waits_for_it_any_more(door: Door, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    caller = door.call("echo", "$$", ">", str(mark), ";", "exec", str(shutil.which("sleep")), "600")
    pid = int(until(lambda: mark.exists() and mark.read_text().strip()))
    caller.kill()
    caller.communicate()
    assert door.process.wait(60) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
