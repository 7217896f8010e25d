"""Workers of several processes: which ranks they are, what they see, and how they are told apart from their pods."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.burst.chorus import Chorus
from gateway.burst.course import COURSE
from gateway.burst.engines import ENGINES, mpi, pods
from gateway.burst.gathering import Gathered
from gateway.burst.layout import wanted_procs
from gateway.burst.record import Folder, Record, checked_image
from gateway.burst.verdict import verdict
from gateway.protocol import burst
from gateway.protocol.burst import Process
from gateway.protocol.errors import BadRequest

REQUEST: dict[str, Any] = {"python": "/env/bin/python", "version": [3, 11, 4], "env": {"PATH": "/env/bin"}}
ADDRESSES = ["10.0.0.1", "10.0.0.2"]


def record(engine: str, procs: int = 2, gpus: int = 0, **fields: Any) -> Record:
    found = Record("0" * 16, "burst-1", "k", "ada", engine, 2, gpus, procs=procs, **fields)
    found.leases = {found.id: [f"GPU-{number}" for number in range(2 * gpus)]}
    return found


def here(engine: str, **fields: Any) -> list[Process]:
    return ENGINES[engine](record(engine, **fields), REQUEST, Path())


def places(made: list[Process]) -> list[list[str]]:
    return [[each.env[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] for each in made]


def test_on_one_machine_the_processes_of_a_worker_see_its_gpus_and_count_from_0() -> None:
    made = here("none", gpus=2)
    assert places(made) == [["0", "4", "0", "2"], ["1", "4", "1", "2"], ["2", "4", "0", "2"], ["3", "4", "1", "2"]]
    assert [(each.number, each.gpus) for each in made] == [
        (0, ["GPU-0", "GPU-1"]), (1, ["GPU-0", "GPU-1"]), (2, ["GPU-2", "GPU-3"]), (3, ["GPU-2", "GPU-3"]),
    ]  # fmt: skip


def test_workers_of_one_process_each_are_one_machine_there_as_ever() -> None:
    made = here("none", procs=1, gpus=1)
    assert places(made) == [["0", "2", "0", "2"], ["1", "2", "1", "2"]]
    assert [each.gpus for each in made] == [None, None]
    [torchrun] = here("torch", procs=1)
    assert "--standalone" in torchrun.argv and "--nproc-per-node=2" in torchrun.argv and torchrun.gpus is None


def test_on_one_machine_each_worker_has_a_torchrun_of_its_own() -> None:
    made = here("torch", procs=3, gpus=1)
    assert [(each.name, each.ranks, each.number, each.gpus) for each in made] == [
        ("torchrun of worker 0", 3, 0, ["GPU-0"]), ("torchrun of worker 1", 3, 3, ["GPU-1"]),
    ]  # fmt: skip
    assert all({"--nnodes=2", "--nproc-per-node=3", "--master-addr=127.0.0.1"} <= set(each.argv) for each in made)
    assert [next(word for word in each.argv if word.startswith("--node-rank")) for each in made] == ["--node-rank=0", "--node-rank=1"]
    assert len({word for each in made for word in each.argv if word.startswith("--master-port")}) == 1


def test_on_one_machine_mpirun_is_told_what_each_worker_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi.shutil, "which", lambda name, path: name)
    [mpirun] = here("mpi", gpus=1)
    first, second = (" ".join(part.split()) for part in " ".join(mpirun.argv).split(" : "))
    assert first.startswith("mpirun -np 2 env ELASTIC_BURST_TOGETHER=2 CUDA_VISIBLE_DEVICES=GPU-0 /env/bin/python")
    assert second.startswith("-np 2 env ELASTIC_BURST_TOGETHER=2 CUDA_VISIBLE_DEVICES=GPU-1 /env/bin/python")
    assert mpirun.ranks == 4
    assert "CUDA_VISIBLE_DEVICES" not in " ".join(here("mpi", procs=1)[0].argv)


@pytest.mark.parametrize("engine", ["none", "torch", "mpi"])
def test_in_pods_each_worker_is_one_pod_of_several_ranks(engine: str) -> None:
    found = record(engine)
    assert pods.shape(found) == (2, {0, 1}, 4)
    assert pods.jobs(found)[0].count == 2
    made = [pods.processes(found, REQUEST, number, ADDRESSES) for number in (0, 1)]
    assert [sum(each.ranks for each in pod) for pod in made] == [2, 2]


def test_in_pods_ranks_count_on_from_one_pod_to_the_next() -> None:
    made = pods.processes(record("none"), REQUEST, 1, ADDRESSES)
    assert places(made) == [["2", "4", "0", "2"], ["3", "4", "1", "2"]]
    assert [(each.name, each.number) for each in made] == [("rank 2", 2), ("rank 3", 3)]
    [torchrun] = pods.processes(record("torch"), REQUEST, 1, ADDRESSES)
    assert {"--nnodes=2", "--node-rank=1", "--nproc-per-node=2", "--master-addr=10.0.0.1"} <= set(torchrun.argv)
    assert (torchrun.name, torchrun.number) == ("torchrun of worker 1", 2)
    assert pods.files(record("mpi"), ADDRESSES, REQUEST)["mpi-hosts"] == "10.0.0.1 slots=2\n10.0.0.2 slots=2\n"
    [mpirun] = pods.processes(record("mpi"), REQUEST, 0, ADDRESSES)
    assert mpirun.argv[mpirun.argv.index("-np") + 1] == "4"


@pytest.mark.parametrize(
    ("procs", "engine", "roles", "told"),
    [
        (0, "none", [], "from 1 to 64"),
        (65, "none", [], "from 1 to 64"),
        (True, "none", [], "from 1 to 64"),
        ("2", "none", [], "from 1 to 64"),
        (2, "dask", [], "one server of its own"),
        (2, "ray", [], "one server of its own"),
        (2, "tf-ps", [{"name": "ps", "count": 1}], "one server of its own"),
        (2, "none", [{"name": "simulator", "count": 1}], "leave --procs out"),
    ],
)
def test_where_several_processes_make_no_sense_they_are_refused(procs: Any, engine: str, roles: list[Any], told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        wanted_procs(procs, engine, roles)
    assert wanted_procs(None, engine, roles) == wanted_procs(1, engine, roles) == 1


@pytest.mark.parametrize("image", ["", "a b", "-x", "a\nb", "{x}", 7, "a" * 256])
def test_what_is_no_name_of_an_image_is_refused(image: Any) -> None:
    with pytest.raises(BadRequest, match="An image is named as in"):
        checked_image(image)
    assert checked_image("registry.example.com:5000/team/torch:2.9@sha256:0a") and checked_image(None) == ""


def said(kind: str, **fields: Any) -> bytes:
    return burst.line({"t": kind, "at": 1.0, **fields})


def states(folder: Folder) -> list[tuple[int, int]]:
    events = [json.loads(line) for line in folder.lines()]
    return [(event["running"], event["of"]) for event in events if event["t"] == burst.STATE]


def test_ranks_are_counted_and_not_their_pods(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    gathered = Gathered(folder, 2, 4)
    gathered.take(0, 0, said(burst.STATE, running=1, of=2) + said(burst.STATE, running=2, of=2))
    gathered.take(1, 0, said(burst.STATE, running=1, of=2))
    again = Gathered.again(folder, 2, 4)
    again.take(1, again.upto[1], said(burst.STATE, running=2, of=2))
    assert states(folder) == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_rank_that_fails_is_named_by_its_number_and_what_a_pod_says_by_its_worker(tmp_path: Path) -> None:
    gathered = Gathered(Folder(tmp_path), 2, 4)
    end = said(burst.END, outcome=burst.CANCELLED, message="The cluster has ended its pod.")
    gathered.take(0, 0, end)
    assert verdict(gathered, (), partial(pods.called, record("none")))[1] == "Worker 0: The cluster has ended its pod."
    gathered.take(1, 0, said(burst.FAILED, rank=3, name="ValueError: x"))
    assert (gathered.failing, verdict(gathered)[1]) == ({1}, "Rank 3 failed: ValueError: x")


def test_of_workers_that_come_and_go_ranks_are_counted_too(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    chorus = Chorus.of(folder, False, procs=2)
    steps: list[dict[str, Any]] = [{"do": "know", "name": "a"}, {"do": "group", "number": 1, "pods": [0]}, {"do": "go", "state": None}]
    for step in steps:
        chorus.decide({"t": COURSE, **step})
    chorus.take(0, 0, said(burst.READY, group=1))
    assert states(folder) == [(0, 2), (2, 2)]


def test_a_worker_that_comes_later_has_the_gpus_that_were_leased_for_it() -> None:
    found = record("none", gpus=2)
    found.workers, found.leases[f"{found.id}.1"] = 3, ["GPU-8", "GPU-9"]
    assert [found.gpus_of(worker) for worker in range(3)] == [["GPU-0", "GPU-1"], ["GPU-2", "GPU-3"], ["GPU-8", "GPU-9"]]
