"""What a burst outlives, and what it doesn't: a gateway that is killed, its kernel's restart, a machine without a gateway."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from gateway.backends.processes import started
from tests.integration.machine import kernel, machine, run, until  # noqa: F401 - a fixture
from tests.integration.serving import Gateway


def patient(folder: Path, words: str = "-w 2 -e none") -> str:
    """A cell whose ranks say who they are and go on until they are let go."""
    return (
        f"%%distributed {words}\nimport os, time, pathlib\nhere = pathlib.Path({str(folder)!r})\n"
        "(here / f'rank{RANK}').write_text(str(os.getpid()))\n"
        "while not (here / 'go').exists(): time.sleep(0.05)\nprint('through', RANK)\nmade = 'home'\n"
    )


def ranks(folder: Path) -> list[int]:
    """Their processes, once both are there."""
    files = [folder / "rank0", folder / "rank1"]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    return [int(file.read_text()) for file in files]


@pytest.fixture
def gateway(machine):  # noqa: F811
    found = Gateway(machine)
    yield found
    if found.process.poll() is not None:
        found.start()
    found.call("POST", "/api/shutdown", json={"kernels": True})
    found.process.wait(60)


def test_a_gateway_that_is_killed_loses_nothing_of_a_burst(gateway, tmp_path):
    first = gateway.kernel(KERNEL_USERNAME="ada")
    browser = first.open()
    browser.begin(patient(tmp_path, "-w 2 -e none --name lasting"))
    pids = ranks(tmp_path)
    gateway.stop(signal.SIGKILL)
    assert all(map(started, pids))
    gateway.start()
    until(lambda: [each["state"] for each in gateway.call("GET", "/api/bursts").json()["bursts"]] == ["running"])
    (tmp_path / "go").touch()
    again = first.open()
    assert again.run("print(made)").out == "home\n"  # it runs after the cell that waits for its workers
    assert "through 0" in again.run("%burst logs lasting").out


def test_a_kernel_that_is_restarted_ends_its_burst_but_not_a_detached_one(gateway, tmp_path):
    for name in ("ends", "stays"):
        (tmp_path / name).mkdir()
    with gateway.kernel(KERNEL_USERNAME="ada") as found:
        browser = found.open()
        browser.run(patient(tmp_path / "stays", "-w 2 -e none --detach --name stays"))
        stays = ranks(tmp_path / "stays")
        browser.begin(patient(tmp_path / "ends"))
        ends = ranks(tmp_path / "ends")
        assert found.call("POST", "/restart").ok
        until(lambda: not any(map(started, ends)))
        assert all(map(started, stays))
        (tmp_path / "stays" / "go").touch()
        until(lambda: gateway.call("GET", "/api/bursts/stays").json()["outcome"] == "ok")
        after = found.open()
        assert after.run("%burst result stays").status == "ok"
        assert after.run("print(made)").out == "home\n"


def test_without_a_gateway_the_machines_broker_runs_it(machine, tmp_path):  # noqa: F811
    with kernel() as (_, client):
        (tmp_path / "go").touch()
        assert "through 1" in run(client, patient(tmp_path))
        assert run(client, "print(made)") == "home"
