"""More kernels than this machine starts at a time: those that wait for their turn, told, ended, and found by the next gateway."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.machine import Machine, until
from tests.integration.serving import Gateway, Kernel, end


class Room:
    """One kernel starts at a time, and that of kernelspec ``first`` once a test lets it."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.flag = machine, machine.root / "go"
        script = f"while [ ! -e {self.flag} ]; do sleep .05; done; exec {sys.executable} -m ipykernel_launcher -f $0"
        argv = ["bash", "-c", script, "{connection_file}"]
        machine.kernelspec("first", {"display_name": "first", "language": "python", "argv": argv, "metadata": {}})
        self.gateway = Gateway(machine, "LocalBackend.starts_at_once=1")
        self.first = self.gateway.kernel("first", KERNEL_USERNAME="ada")
        until(machine.supervisors)

    def kept(self) -> list[Path]:
        return list(self.machine.places.starts.iterdir())

    def reason(self, kernel: Kernel) -> str:
        return str(kernel.call("GET").json().get("reason", ""))

    def waiting(self, **env: str) -> Kernel:
        kernel = self.gateway.kernel(KERNEL_USERNAME="ada", **env)
        until(lambda: "waits for its turn" in self.reason(kernel))
        return kernel


@pytest.fixture
def room(own_machine: Machine) -> Iterator[Room]:
    found = Room(own_machine)
    yield found
    found.flag.touch()
    end(found.gateway)


def test_a_start_that_waits_for_its_turn_says_so_in_the_notebook_and_its_launch_timeout_counts_from_then(room):
    second = room.waiting(KERNEL_LAUNCH_TIMEOUT="5")
    browser = second.open()
    said = browser.begin("print(6 * 7)")
    told = browser.wait(lambda m: m["parent"] == said and m["type"] == "stream")
    assert "waits for its turn" in told["content"]["text"] and "starts_at_once" in told["content"]["text"]
    assert second.state == "starting"
    room.flag.touch()
    assert browser.finish(said).out == "42\n"
    assert room.reason(second) == "" and room.kept() == []
    room.first.open().run("1")


def test_a_start_that_waits_for_its_turn_is_ended_by_delete_and_keeps_nobody_waiting(room):
    second, third = room.waiting(), room.waiting()
    assert second.call("DELETE").status_code == 204
    assert second.state == "404" and len(room.kept()) == 1
    assert room.first.call("DELETE").status_code == 204, "one that hangs as it starts gives its turn away"
    assert third.open().run("print(1)").out == "1\n"
    assert room.kept() == []


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_gateway_that_ends_loses_no_start_that_waits_for_its_turn(room, signum):
    second = room.waiting(KERNEL_COLOUR="red")
    [kept] = room.kept()
    assert kept.stat().st_mode & 0o777 == 0o600 and json.loads(kept.read_text())["env"]["KERNEL_COLOUR"] == "red"
    room.gateway.stop(signum)
    room.gateway.start()
    browser = second.open()
    assert browser.run("import os; print(os.environ['KERNEL_COLOUR'])").out == "red\n"
    assert room.kept() == []
    room.flag.touch()
    assert room.first.open().run("print(1)").out == "1\n"


def test_ending_all_kernels_ends_those_that_wait_for_their_turn_too(room):
    second = room.waiting()
    room.gateway.stop(signal.SIGKILL)
    ended = room.machine.run("import sys; from gateway.cli import main; sys.exit(main(sys.argv[1:]))", "shutdown", "--kernels", "--json")
    assert json.loads(ended.communicate(timeout=60)[0]) == {"ended": 2, "stopped": False}
    assert room.kept() == []
    room.gateway.start()
    assert second.state == "404"
