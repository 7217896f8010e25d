"""Which rank a process is, by what the engine that has started it says."""

from __future__ import annotations

import pytest

from gateway.pod.burst.process_group import backend, make
from gateway.pod.burst.worker import place_of

OPEN_MPI = "OMPI_COMM_WORLD"


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, [3, 4, 1, 2]),
        (
            {f"{OPEN_MPI}_RANK": "3", f"{OPEN_MPI}_SIZE": "4", f"{OPEN_MPI}_LOCAL_RANK": "1", f"{OPEN_MPI}_LOCAL_SIZE": "2"},
            [3, 4, 1, 2],
        ),
        ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "3", "MPI_LOCALNRANKS": "4", "ELASTIC_BURST_TOGETHER": "2"}, [3, 4, 1, 2]),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, [0, 1, 0, 1]),
    ],
    ids=["torchrun", "Open MPI in pods", "MPICH on one machine", "a chief"],
)  # fmt: skip
def test_a_rank_finds_its_place_whoever_has_started_it(env: dict[str, str], place: list[int]) -> None:
    assert list(place_of(env).values()) == place


@pytest.mark.parametrize(("gpus", "ranks", "name"), [(0, 1, "gloo"), (8, 8, "nccl"), (8, 2, "nccl"), (1, 2, "gloo")])
def test_ranks_that_share_a_gpu_speak_gloo(gpus: int, ranks: int, name: str) -> None:
    assert backend(gpus, ranks) == name


def test_a_ready_process_group_of_nccl_has_the_ranks_own_gpu_as_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is 5 GB and no part of the test extra: pip install torch")
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(str(device)))
    monkeypatch.setattr(torch.distributed, "init_process_group", done.append)
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    make("import torch")
    assert done == ["cuda:5", "nccl"]
