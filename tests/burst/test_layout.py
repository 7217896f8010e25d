"""Which roles a burst is made of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gateway.burst.engines.roles import with_roles
from gateway.burst.engines.spmd import processes
from gateway.burst.engines.tf_ps import processes as tf_ps
from gateway.burst.layout import layout, wanted_roles
from gateway.burst.record import Record
from gateway.protocol import burst
from gateway.protocol.errors import BadRequest

REQUEST = {"python": "/env/bin/python", "version": [3, 11, 4], "env": dict(os.environ)}


def record(engine: str, roles: object = None, workers: int = 2, **fields: object) -> Record:
    return Record("0" * 16, "burst-1", "k", "ada", engine, workers, roles=wanted_roles(roles, engine, 64), **fields)


def shape(found: Record) -> list[tuple[str, int, bool, bool]]:
    return [(role.name, role.count, role.runs_cell, role.leads) for role in layout(found)]


def test_a_parameter_server_has_a_chief_that_runs_the_cell_and_one_server_unless_told_otherwise():
    assert shape(record("tf-ps", workers=4)) == [("chief", 1, True, True), ("worker", 4, False, False), ("ps", 1, False, False)]
    assert shape(record("tf-ps", [{"name": "ps", "count": 3}]))[2] == ("ps", 3, False, False)


def test_simulators_run_the_cell_and_are_ended_once_the_workers_are_through():
    assert shape(record("torch", [{"name": "simulator", "count": 3}])) == [("worker", 2, True, True), ("simulator", 3, True, False)]


@pytest.mark.parametrize(
    ("engine", "roles", "told"),
    [
        ("none", {"name": "a"}, "a list"),
        ("none", [{"name": "a"}], "a name and a count"),
        ("none", [{"name": "a", "count": True}], "count can't be 'True'"),
        ("none", [{"name": "a", "count": 65}], "from 1 to 64"),
        ("none", [{"name": "a", "count": 0}], "from 1 to 64"),
        ("none", [{"name": "a", "count": 1, "gpus": -1}], "from 0 to 64"),
        ("none", [{"name": "a", "count": 1, "runs_cell": False}], "may have gpus, cpu, memory, image"),
        ("none", [{"name": "worker", "count": 1}], "-w says"),
        ("tf-ps", [{"name": "chief", "count": 1}], "-w says"),
        ("none", [{"name": "A", "count": 1}], "small letters"),
    ],
)
def test_what_is_no_role_is_refused(engine, roles, told):
    with pytest.raises(BadRequest, match=told):
        record(engine, roles)


def test_each_member_is_told_its_role_and_the_addresses_of_all():
    found = record("none", [{"name": "simulator", "count": 2, "gpus": 1}], gpus=1)
    found.leases = {found.id: ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]}
    made = with_roles(found, REQUEST, processes(found, REQUEST, Path()))
    assert [(each.env["ROLE"], each.env["RANK"], each.env["WORLD_SIZE"], each.number, each.follows) for each in made] == [
        ("worker", "0", "2", 0, False), ("worker", "1", "2", 1, False), ("simulator", "0", "2", 2, True), ("simulator", "1", "2", 3, True),
    ]  # fmt: skip
    assert [each.gpus for each in made] == [["GPU-a", "GPU-b"], ["GPU-a", "GPU-b"], ["GPU-c"], ["GPU-d"]]
    told = [json.loads(each.env[burst.ADDRESSES_VARIABLE]) for each in made]
    assert all(each == told[0] for each in told)
    assert {name: len(set(addresses)) for name, addresses in told[0].items()} == {"worker": 2, "simulator": 2}
    meetings = {(each.env["ROLE"], each.env["MASTER_PORT"]) for each in made}
    assert len(meetings) == 2  # each role may hold together by itself


def test_chief_and_servers_of_tensorflow_see_no_gpu_and_each_worker_its_own():
    found = record("tf-ps", gpus=1)
    found.leases = {found.id: ["GPU-a", "GPU-b"]}
    made = tf_ps(found, REQUEST, Path())
    assert [(each.name, each.gpus, each.ranks) for each in made] == [
        ("worker 0", ["GPU-a"], 0), ("worker 1", ["GPU-b"], 0), ("ps 0", [], 0), ("the chief", [], 1),
    ]  # fmt: skip
    config = json.loads(made[1].env["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert {name: len(addresses) for name, addresses in config["cluster"].items()} == {"chief": 1, "worker": 2, "ps": 1}
