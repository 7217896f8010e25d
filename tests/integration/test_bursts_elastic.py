"""Bursts whose workers change while they run, as real processes: no committed step is lost, and none is done twice."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from gateway.backends.processes import started
from tests.integration.machine import Machine, until
from tests.integration.serving import Gateway, end
from tests.integration.test_burst_engines import needs_mpi

STEPS = 120


def stepping(folder: Path, words: str, seconds: float = 0.05, steps: int = STEPS, before: str = "", inside: str = "") -> str:
    """A cell that commits each step, and whose ranks say who they are."""
    return (
        f"%%distributed {words}\nimport os, time, pathlib\nfrom gateway import elastic\nhere = pathlib.Path({str(folder)!r})\n"
        f"(here / f'rank{{RANK}}').write_text(str(os.getpid()))\n{before}\nstate = elastic.State(seen=[])\n"
        f"for step in state.range('step', {steps}):\n    time.sleep({seconds})\n"
        f"    state.seen.append((step, WORLD_SIZE))\n    {inside or 'pass'}\n"
        "    (here / f'step{RANK}').write_text(str(step))\n    state.commit()\nseen, last = state.seen, WORLD_SIZE\n"
    )


def step(folder: Path, rank: int = 0) -> int:
    try:
        return int((folder / f"step{rank}").read_text())
    except (OSError, ValueError):
        return -1


def pid(folder: Path, rank: int) -> int:
    return int((folder / f"rank{rank}").read_text())


def sizes(browser, steps: int = STEPS) -> list[int]:
    """The numbers of workers that the steps were done with, in their order; each step was done exactly once."""
    seen = eval(browser.run("print(seen)").out)
    assert [number for number, _ in seen] == list(range(steps))
    found = [seen[0][1]]
    for _, world in seen:
        if world != found[-1]:
            found.append(world)
    return found


@pytest.fixture(scope="module")
def gateway():
    own = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    found = Gateway(own, "Bursts.grow_after=1", "ElasticGateway.simulated_gpus=3")
    yield found
    if found.process.poll() is not None:
        found.start()
    end(found)
    own.clean()


def scale(gateway, name: str, workers: int | None) -> None:
    assert gateway.call("POST", f"/api/bursts/{name}/scale", json={"workers": workers}).status_code == 202


def burst(gateway, name: str) -> dict:
    return gateway.call("GET", f"/api/bursts/{name}").json()


def gpus(gateway, holder: str = "") -> int:
    return sum(len(lease["gpus"]) for lease in gateway.call("GET", "/api/gpu").json()["leases"] if lease["kernel_id"].startswith(holder))


@pytest.mark.parametrize("engine", ["none", pytest.param("mpi", marks=needs_mpi)])
def test_workers_come_and_go_as_asked_and_no_step_is_lost_or_done_twice(gateway, tmp_path, engine):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping(tmp_path, f"-w 1:3 -e {engine} --name changing"))
        until(lambda: step(tmp_path) > 10)
        scale(gateway, "changing", 3)
        until(lambda: step(tmp_path, 2) > 0)
        scale(gateway, "changing", 1)
        done = browser.finish(cell, seconds=120)
        assert done.status == "ok", done
        assert sizes(browser)[-2:] == [3, 1]
        assert browser.run("print(last)").out == "1\n"


def test_workers_go_on_until_the_others_have_imported_what_takes_long(gateway, tmp_path):
    go, slow = tmp_path / "go", tmp_path / "slow/torch/__init__.py"
    slow.parent.mkdir(parents=True)
    slow.write_text(
        f"import os, pathlib, time\npathlib.Path({str(tmp_path)!r}, f'imports{{os.getpid()}}').touch()\n"
        f"while not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.01)\nraise ImportError\n"
    )
    go.touch()
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        path = f"{slow.parents[1]}{os.pathsep}"
        browser.run(f"import os\nos.environ['PYTHONPATH'] = {path!r} + os.environ.get('PYTHONPATH', '')")
        cell = browser.begin(stepping(tmp_path, "-w 1:2 -e none --name heavy", before="# torch", steps=300))
        until(lambda: step(tmp_path) > 5)
        first = burst(gateway, "heavy")["workers"]  # as many as there are cores for
        go.unlink()
        scale(gateway, "heavy", 3 - first)
        until(lambda: len(list(tmp_path.glob("imports*"))) == 3)
        begun = step(tmp_path)
        until(lambda: step(tmp_path) > begun + 20)
        go.touch()
        assert browser.finish(cell, seconds=120).status == "ok"
        assert sizes(browser, 300) == [first, 3 - first]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_worker_costs_what_was_done_since_the_last_save(gateway, tmp_path, rank):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping(tmp_path, "-w 2 -e none --save-every 1s"))
        until(lambda: step(tmp_path) > 30)
        os.kill(pid(tmp_path, rank), signal.SIGKILL)
        assert browser.finish(cell, seconds=120).status == "ok"
        assert sizes(browser) == [2]
        text = "".join(str(m["content"]) for m in browser.messages if m["parent"] == cell)
        assert "Other workers go on from its last save (step " in text


def test_a_worker_that_is_lost_again_and_again_ends_the_burst(gateway, tmp_path):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.run(stepping(tmp_path, "-w 2 -e none --restartable", before="os._exit(3)"), seconds=120)
        assert cell.status == "error"
        assert "Workers were lost 4 times, and nothing was saved in between" in cell.evalue


def test_a_worker_that_is_lost_at_the_same_step_again_and_again_ends_the_burst_though_it_commits_before(gateway, tmp_path):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        begun = browser.begin(stepping(tmp_path, "-w 2 -e none", seconds=0.01, inside="if step == 20 and RANK: os._exit(3)"))
        cell = browser.finish(begun, seconds=120)
        assert (cell.status, "Workers were lost 4 times, and nothing was saved in between" in cell.evalue) == ("error", True), cell
        assert "Rank 1" in cell.evalue or "rank 1" in cell.evalue
        text = "".join(str(m["content"]) for m in browser.messages if m["parent"] == begun)
        assert text.count("Other workers go on from its last save (step 1)") == 3


def test_without_a_commit_nothing_begins_anew_by_itself(gateway, tmp_path):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        text = f"import os, time, pathlib\npathlib.Path({str(tmp_path)!r}, f'rank{{RANK}}').write_text(str(os.getpid()))\ntime.sleep(600)"
        cell = browser.begin(f"%%distributed -w 2:3 -e none\n{text}")
        until(lambda: (tmp_path / "rank1").exists() and (tmp_path / "rank1").read_text())
        os.kill(pid(tmp_path, 1), signal.SIGKILL)
        done = browser.finish(cell, seconds=60)
        assert done.status == "error"
        assert "Rank 1" in done.evalue or "rank 1" in done.evalue
        assert "This cell has no commit" in "".join(str(m["content"]) for m in browser.messages if m["parent"] == cell)


def test_an_error_of_the_cell_is_no_lost_worker(gateway, tmp_path):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.run(stepping(tmp_path, "-w 1:2 -e none", inside="assert step < 20, 'too far'"), seconds=60)
        assert (cell.status, cell.ename, cell.evalue) == ("error", "AssertionError", "too far")


def test_idle_gpus_are_taken_and_given_back_to_a_kernel_that_waits(gateway, tmp_path):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel, gateway.kernel(KERNEL_USERNAME="bob") as other:
        browser, waits = kernel.open(), other.open()
        waits.run("%%gpu\nheld = 1")
        cell = browser.begin(stepping(tmp_path, "-w 1:3 -g 1 -e none --name hungry", steps=200))
        until(lambda: step(tmp_path) > 10)
        before = burst(gateway, "hungry")
        assert before["workers"] == 2, "one is bob's"
        assert gateway.call("POST", f"/api/gpu/kernels/{other.id}/release").ok
        until(lambda: burst(gateway, "hungry")["workers"] == 3 and step(tmp_path, 2) > 0)
        assert gpus(gateway, before["id"]) == 3
        began = step(tmp_path)
        assert waits.run("%%gpu\nprint(held)", seconds=60).out == "1\n"
        assert step(tmp_path) < 199 and step(tmp_path) >= began
        assert browser.finish(cell, seconds=120).status == "ok"
        assert sizes(browser, 200)[:3] == [2, 3, 2]
        until(lambda: gpus(gateway, before["id"]) == 0)


def test_a_gateway_that_is_killed_goes_on_with_the_size_that_there_is(gateway, tmp_path):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.begin(stepping(tmp_path, "-w 1:3 -g 1 -e none --name lasting", steps=250))
        until(lambda: step(tmp_path, 2) > 3)
        gateway.stop(signal.SIGKILL)
        at = step(tmp_path)
        until(lambda: step(tmp_path) > at + 3)
        gateway.start()
        until(lambda: gpus(gateway, burst(gateway, "lasting")["id"]) == 3)
        scale(gateway, "lasting", 1)
        until(lambda: gpus(gateway, burst(gateway, "lasting")["id"]) == 1)
        again = kernel.open()
        assert sizes(again, 250)[-2:] == [3, 1]
        assert all(started(process) is None for process in [pid(tmp_path, rank) for rank in range(3)])


def test_the_stop_button_ends_a_burst_in_the_middle_of_a_change(gateway, tmp_path):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping(tmp_path, "-w 1:3 -e none --name stopped", seconds=1.0, steps=600))
        until(lambda: step(tmp_path) > 0)
        pids = [pid(tmp_path, rank) for rank in range(burst(gateway, "stopped")["workers"])]
        scale(gateway, "stopped", 3)
        until(lambda: "→ 3 workers" in str([m["content"] for m in browser.messages if m["parent"] == cell]))
        assert kernel.call("POST", "/interrupt").ok
        assert browser.finish(cell, seconds=30).ename == "KeyboardInterrupt"
        until(lambda: not any(map(started, pids)))
        assert burst(gateway, "stopped")["outcome"] == "cancelled"
