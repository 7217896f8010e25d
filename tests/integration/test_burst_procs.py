"""Workers of several processes on one machine: real kernels, real ranks, and GPUs that are simulated."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.integration.machine import Machine, until
from tests.integration.serving import Gateway, end
from tests.integration.test_burst_engines import needs_mpi, needs_torch
from tests.integration.test_bursts_elastic import burst, gpus, scale, sizes, step, stepping

WHERE = (
    "import os\nfound = RANK, WORLD_SIZE, LOCAL_RANK, int(os.environ['LOCAL_WORLD_SIZE']), os.environ['CUDA_VISIBLE_DEVICES'].split(',')\n"
)
PLACES = "print([each[:4] for each in found], [len(each[4]) for each in found], len({each[4][0] for each in found}))"


@pytest.fixture(scope="module")
def gateway():
    own = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    found = Gateway(own, "Bursts.grow_after=1", "ElasticGateway.simulated_gpus=4")
    yield found
    end(found)
    own.clean()


@pytest.fixture
def browser(gateway):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        yield kernel.open()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["none", pytest.param("torch", marks=needs_torch), pytest.param("mpi", marks=needs_mpi)])
def test_each_worker_is_as_many_ranks_which_see_its_gpus_and_no_others(gateway, browser, engine):
    cell = browser.run(f"%%distributed -w 2 -g 2 --procs 2 -e {engine} --ranks all --show 3 --name {engine}\n{WHERE}print('hello')", 200)
    assert (cell.status, cell.out) == ("ok", "hello\n"), cell
    ranks = [(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)]
    assert browser.run(PLACES).out == f"{ranks} [2, 2, 2, 2] 2\n"
    assert browser.run(f"%burst logs {engine} -r 1").out == "hello\n"
    assert "2 x 2" in browser.run("%burst ls").out
    shown = burst(gateway, engine)
    assert shown["procs"] == 2
    until(lambda: gpus(gateway, shown["id"]) == 0)


def test_workers_of_one_process_each_are_one_machine_as_ever(browser):
    cell = browser.run(f"%%distributed -w 2 -g 1 -e none --ranks all\n{WHERE}")
    assert cell.status == "ok", cell
    assert browser.run(PLACES).out == "[(0, 2, 0, 2), (1, 2, 1, 2)] [2, 2] 1\n"


def test_a_gpu_is_leased_for_each_process_of_a_cell_that_uses_them(browser):
    assert browser.run(f"%%distributed -w 1 --procs 3 -e none --ranks all\n{WHERE}# on cuda").status == "ok"
    assert browser.run(PLACES).out == "[(0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3)] [3, 3, 3] 1\n"
    few = browser.begin(f"%%distributed -w 2 --procs 3 -e none\n{WHERE}# on cuda")
    assert browser.finish(few).status == "ok"
    told = "".join(str(m["content"]) for m in browser.messages if m["parent"] == few)
    assert "with one for each process they would need 6, and there are 4 here" in told


@needs_torch
@pytest.mark.timeout(300)
def test_ranks_of_several_torchruns_hold_together_and_each_may_end_in_its_time(browser):
    cell = browser.run(
        "%%distributed -w 2 -g 0 --procs 2 -e torch --ranks all\nimport time, torch, torch.distributed as dist\n"
        "total = torch.tensor(RANK + 1)\ndist.all_reduce(total)\nwhere = str(device)\ntime.sleep(4 * (RANK == 3))\ntotal = int(total)",
        200,
    )
    assert cell.status == "ok", cell
    assert browser.run("print(total, where)").out == "[10, 10, 10, 10] ['cpu', 'cpu', 'cpu', 'cpu']\n"
    failed = browser.run(
        "%%distributed -w 2 -g 0 --procs 2 -e torch\nimport torch.distributed as dist\n"
        "if RANK == 3:\n    raise LookupError('one of four')\ndist.barrier()",
        200,
    )
    assert (failed.ename, failed.evalue) == ("LookupError", "one of four"), failed


def test_a_rank_that_just_exits_is_told_by_its_number(browser):
    cell = browser.run("%%distributed -w 2 --procs 2 -e none\nimport os, time\nif RANK == 2:\n    os._exit(3)\ntime.sleep(600)")
    assert cell.ename == "BurstFailed" and "rank 2 ended with exit code 3" in cell.evalue, cell


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["none", pytest.param("torch", marks=needs_torch)])
def test_workers_come_and_go_with_all_of_their_processes(gateway, browser, tmp_path, engine):
    name = f"{engine}-changing"
    inside = (
        "(here / f'cuda{RANK}').write_text(os.environ['CUDA_VISIBLE_DEVICES'])\n    (here / f'world{RANK}').write_text(str(WORLD_SIZE))\n"
        "    if (here / 'enough').exists(): break"
    )

    def changes(workers: int) -> None:
        scale(gateway, name, workers)
        until(lambda: (tmp_path / "world0").read_text() == str(2 * workers), 120)
        began = step(tmp_path)
        until(lambda: step(tmp_path) > began + 3, 60)

    cell = browser.begin(stepping(tmp_path, f"-w 1:2 --procs 2 -g 1 -e {engine} --name {name}", steps=10000, inside=inside))
    until(lambda: step(tmp_path) > 5, 120)
    changes(1)
    changes(2)
    (tmp_path / "enough").touch()
    done = browser.finish(cell, seconds=200)
    assert done.status == "ok", done
    assert sizes(browser, step(tmp_path) + 2)[-2:] == [2, 4]
    seen = [(tmp_path / f"cuda{rank}").read_text() for rank in range(4)]
    assert seen[0] == seen[1] != seen[2] == seen[3] and all(seen)
    until(lambda: gpus(gateway, burst(gateway, name)["id"]) == 0)
    assert not any(Path(f"/proc/{(tmp_path / f'rank{rank}').read_text()}").exists() for rank in range(4))
