"""What each pod of a burst runs, by engine."""

from __future__ import annotations

import json

import pytest

from gateway.burst.engines import keys
from gateway.burst.engines.pods import called, files, jobs, processes, shape
from gateway.burst.layout import wanted_roles
from gateway.burst.record import Record
from gateway.protocol.errors import BadRequest
from gateway.protocol.roles import Role

REQUEST = {"python": "/env/bin/python", "version": [3, 11, 4]}
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]


def record(engine: str, workers: int = 2, roles: object = None, gpus: int = 0) -> Record:
    return Record("0" * 16, "burst-1", "k", "ada", engine, workers, gpus, roles=wanted_roles(roles, engine, 64))


def test_a_pod_is_called_by_its_number_in_its_role():
    beside = record("none", 2, [{"name": "simulator", "count": 2}])
    assert [called(beside, pod) for pod in range(4)] == ["rank 0", "rank 1", "simulator 0", "simulator 1"]
    assert [called(record("tf-ps", 2), pod) for pod in range(4)] == ["rank 0", "worker 0", "worker 1", "ps 0"]
    assert [called(record("dask"), pod) for pod in (0, 1, -1)] == ["rank 0", "rank 1", "rank -1"]


def test_plain_ranks_are_a_pod_each_and_all_of_them_are_waited_for():
    assert shape(record("none", 3)) == (3, {0, 1, 2}, 3)
    [rank] = processes(record("none"), REQUEST, 1, ADDRESSES)
    assert (rank.env["RANK"], rank.env["WORLD_SIZE"], rank.env["MASTER_ADDR"]) == ("1", "2", "10.0.0.1")
    assert "ROLE" not in rank.env


def test_simulators_have_pods_after_the_workers_and_know_the_addresses_of_all():
    found = record("none", 2, [{"name": "simulator", "count": 2}])
    assert shape(found) == (4, {0, 1}, 4)
    worker, simulator = (processes(found, REQUEST, number, ADDRESSES[:4])[0] for number in (1, 3))
    assert (worker.env["ROLE"], worker.env["RANK"], worker.env["WORLD_SIZE"]) == ("worker", "1", "2")
    assert (simulator.env["ROLE"], simulator.env["RANK"], simulator.env["WORLD_SIZE"]) == ("simulator", "1", "2")
    assert simulator.env["MASTER_ADDR"] == "10.0.0.3" and simulator.env["ELASTIC_BURST_FIRST"] == "2"
    assert json.loads(simulator.env["ROLE_ADDRESSES"]) == json.loads(worker.env["ROLE_ADDRESSES"]) == {
        "worker": ["10.0.0.1:29500", "10.0.0.2:29500"], "simulator": ["10.0.0.3:29500", "10.0.0.4:29500"],
    }  # fmt: skip


def test_a_parameter_server_has_a_pod_for_each_of_its_processes_and_ends_with_its_chief():
    found = record("tf-ps", 2)
    assert shape(found) == (4, {0}, 1)
    made = [processes(found, REQUEST, number, ADDRESSES[:4]) for number in range(4)]
    assert [[(each.name, each.ranks) for each in pod] for pod in made] == [
        [("the chief", 1)], [("worker 0", 0)], [("worker 1", 0)], [("ps 0", 0)],
    ]  # fmt: skip
    config = json.loads(made[3][0].env["TF_CONFIG"])
    assert config["task"] == {"type": "ps", "index": 0}
    assert config["cluster"] == {
        "chief": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.3:2222"], "ps": ["10.0.0.4:2222"],
    }  # fmt: skip
    assert "10.0.0.4" in made[0][0].env["no_grpc_proxy"]


def test_dask_has_a_worker_in_each_pod_and_the_cell_begins_once_all_are_there():
    found = record("dask", 3)
    assert shape(found) == (3, {0}, 1)
    worker, scheduler, cell = processes(found, REQUEST, 0, ADDRESSES[:3])
    assert (worker.ranks, scheduler.ranks, cell.ranks, cell.after) == (0, 0, 1, "dask.ready")
    assert scheduler.argv[-3:] == ["8786", "3", "{folder}/dask.ready"]
    [other] = processes(found, REQUEST, 2, ADDRESSES[:3])
    assert other.argv[-2:] == ["worker", "tls://10.0.0.1:8786"]
    assert other.env["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"


def test_mpi_has_mpirun_in_the_first_pod_and_a_door_in_each_other():
    found = record("mpi", 3)
    assert shape(found) == (3, {0, 1, 2}, 3)
    [first], [other] = (processes(found, REQUEST, number, ADDRESSES[:3]) for number in (0, 2))
    at = first.argv.index("run")
    assert first.argv[at - 1 : at + 3] == ["gateway.pod.burst.mpi_door", "run", "-np", "3"]
    assert first.env["PRTE_MCA_plm_ssh_agent"] == "{folder}/mpi-agent"
    assert other.argv[-3:] == ["serve", "{folder}", "29600"] and other.ranks == 1
    made = files(found, ADDRESSES[:3], REQUEST)
    assert made["mpi-hosts"].splitlines() == ["10.0.0.1 slots=1", "10.0.0.2 slots=1", "10.0.0.3 slots=1"]
    assert made["mpi-agent"].startswith("#!/bin/sh\n")


def test_ray_has_a_node_in_each_pod_and_the_cell_begins_once_all_are_there():
    found = record("ray", 2, gpus=1)
    assert shape(found) == (2, {0}, 1)
    head, cell = processes(found, REQUEST, 0, ADDRESSES[:2])
    [node] = processes(found, REQUEST, 1, ADDRESSES[:2])
    assert (head.ranks, cell.ranks, cell.after, node.ranks) == (0, 1, "ray.ready", 0)
    assert head.argv[-9:] == ["{folder}", "head", "10.0.0.1", "6379", "1", "1", "6380", "2", "ray.ready"]
    assert node.argv[-6:] == ["{folder}", "worker", "10.0.0.2", "10.0.0.1:6379", "1", "1"]
    assert {each.env["RAY_AUTH_TOKEN_PATH"] for each in (head, cell, node)} == {"{folder}/ray.token"}


def test_each_role_beside_the_first_is_a_job_with_the_number_of_its_first():
    first, others = jobs(record("tf-ps", 2, [{"name": "ps", "count": 2}, {"name": "eye", "count": 1, "memory": "1Gi"}], gpus=1))
    assert (first.name, first.count, first.gpus) == ("chief", 1, 0)
    assert [(role.name, role.count, role.gpus, role.memory, number) for role, number in others] == [
        ("worker", 2, 1, "", 1), ("ps", 2, 0, "", 3), ("eye", 1, 0, "1Gi", 5),
    ]  # fmt: skip
    assert jobs(record("dask", 3, gpus=1)) == (Role("worker", 3, 1), [])


@pytest.mark.parametrize("engine", ["dask", "mpi", "ray"])
def test_keys_are_made_for_each_burst_and_stand_in_no_environment_or_argument(engine):
    made, again = keys.make(engine, "burst-1"), keys.make(engine, "burst-1")
    assert made.keys() == again.keys() and all(made[name] != again[name] for name in made)
    said = str([vars(each) for number in (0, 1) for each in processes(record(engine), REQUEST, number, ADDRESSES[:2])])
    assert not any(text in said for text in made.values())
    assert not keys.make("torch", "burst-1")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (record("dask", roles=[{"name": "simulator", "count": 1}]), "no roles beside its workers"),
    ],
)
def test_what_pods_can_t_be_is_refused(found, told):
    with pytest.raises(BadRequest, match=told):
        shape(found)
