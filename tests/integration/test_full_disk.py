"""The disk below the runtime folder is full: each answer says so, names the path and what helps, and nothing else is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.machine import Machine, until
from tests.integration.serving import Gateway

WORDS = "No space left on device"


class Disk:
    """A small file system of its own."""

    def __init__(self, root: Path) -> None:
        self.filler = root / "filler"

    def fill(self) -> None:
        with open(self.filler, "ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def clear(self) -> None:
        self.filler.unlink()


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="eg", dir="/tmp"))
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", root], capture_output=True).returncode:
        root.rmdir()
        pytest.skip("a small file system can't be mounted here; run this test as root on a machine that lets root mount")
    found = Machine(root)
    yield found
    found.clean()
    subprocess.run(["umount", root], check=True)
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def gateway(machine: Machine) -> Iterator[Gateway]:
    found = Gateway(machine)
    yield found
    found.call("POST", "/api/shutdown", json={"kernels": True})
    found.process.wait(60)


@pytest.fixture
def disk(gateway: Gateway) -> Iterator[Disk]:
    found = Disk(gateway.machine.root)
    yield found
    if found.filler.exists():
        found.clear()


def names_the_disk(text: str, gateway: Gateway) -> bool:
    return WORDS in text and str(gateway.machine.root) in text and "runtime_dir" in text


def test_a_restart_says_so_in_the_answer_and_in_the_notebook_and_works_once_there_is_room(gateway, disk):
    with gateway.kernel() as kernel, gateway.kernel() as other:
        browser, neighbour = kernel.open(), other.open()
        browser.run("1")
        neighbour.run("kept = 5")
        disk.fill()
        answer = kernel.call("POST", "/restart")
        assert answer.status_code == 500 and names_the_disk(answer.json()["message"], gateway), answer.text
        assert names_the_disk(browser.run("1").evalue, gateway)
        assert neighbour.run("print(kept)").out == "5\n"
        disk.clear()
        assert kernel.call("POST", "/restart").status_code == 200
        assert browser.run("print('back')").out == "back\n"


def test_a_start_says_so_in_the_notebook_and_leaves_nothing_behind(gateway, disk):
    before = set(gateway.machine.places.kernels.iterdir())
    disk.fill()
    with gateway.kernel() as kernel:
        cell = kernel.open().run("1")
        assert names_the_disk(cell.evalue, gateway)
        assert names_the_disk(kernel.call("GET").json()["reason"], gateway)
    assert set(gateway.machine.places.kernels.iterdir()) == before


def test_a_session_that_can_not_be_written_down_says_so_and_leaves_no_kernel(gateway, disk):
    disk.fill()
    answer = gateway.call("POST", "/api/sessions", json={"path": "a.ipynb", "name": "", "type": "notebook", "kernel": {"name": "elastic"}})
    assert answer.status_code == 507 and names_the_disk(answer.json()["message"], gateway), answer.text
    assert answer.json()["reason"] == "not_kept"
    until(lambda: not gateway.call("GET", "/api/kernels").json())
    assert gateway.call("GET", "/api/sessions").json() == []


def test_a_session_can_be_ended_all_the_same(gateway, disk):
    body = {"path": "b.ipynb", "name": "", "type": "notebook", "kernel": {"name": "elastic"}}
    session = gateway.call("POST", "/api/sessions", json=body).json()
    until(lambda: gateway.call("GET", f"/api/kernels/{session['kernel']['id']}").json()["execution_state"] == "idle")
    disk.fill()
    assert gateway.call("DELETE", f"/api/sessions/{session['id']}").status_code == 204
    assert gateway.call("GET", "/api/sessions").json() == []
    assert gateway.call("GET", "/api/kernels").json() == []


def test_a_gateway_that_comes_up_meanwhile_finds_its_kernels(gateway, disk):
    with gateway.kernel() as kernel:
        kernel.open().run("kept = 7")
        gateway.stop(signal.SIGKILL)
        disk.fill()
        gateway.start()
        assert kernel.open().run("print(kept)").out == "7\n"


def test_a_burst_says_so_and_keeps_neither_gpus_nor_room(gateway, disk):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        browser.run("1")
        disk.fill()
        refused = gateway.call("POST", "/api/bursts", json={"kernel_id": kernel.id, "code": "1"})
        assert refused.json()["reason"] == "not_kept" and WORDS in refused.json()["message"]
        assert WORDS in browser.run("%%distributed -w 1 -e none\n1").err
        disk.clear()
        large = browser.run("%%distributed -w 1 -g 1 -e none --name large\nlarge = bytes(40_000_000)")
        assert large.evalue.startswith("Rank 0 failed: what it has made can't be kept in") and WORDS in large.evalue
        fails = "for _ in range(60_000): print('x' * 1000)\nraise LookupError('mine')"
        full = browser.run(f"%%distributed -w 1 -g 1 -e none --name full\n{fails}")
        assert "LookupError: mine" in full.evalue and "characters of output were dropped" in full.err
        assert gateway.call("DELETE", "/api/bursts/full").status_code == 204
        assert browser.run("%%distributed -w 1 -g 1 -e none\nprint('room again')").out == "room again\n"
