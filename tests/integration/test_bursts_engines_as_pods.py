"""Engines and roles whose pods are processes here: gateway, agents and engines are the real ones."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.magics import capture
from gateway.protocol import burst
from tests.doubles.fake_supervisor import FakeSupervisor
from tests.integration.test_burst_engines import needs_dask, needs_torch
from tests.integration.test_bursts_elastic_pods import Site, run

ROLES = """
from multiprocessing.connection import Client, Listener
import time
def place(address):
    host, _, port = address.rpartition(":")
    return host, int(port)
if ROLE == "simulator":
    print("simulator", RANK, "of", WORLD_SIZE)
    with Listener(place(ADDRESSES[ROLE][RANK])) as door, door.accept() as learner:
        while True:
            learner.send(2 * learner.recv())
else:
    while True:
        try:
            line = Client(place(ADDRESSES["simulator"][0]))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    line.send(21)
    answer, role = line.recv(), ROLE
"""
DASK = """
from distributed import Client
with Client() as client:
    scheme, count = client.scheduler.address[:3], len(client.scheduler_info()["workers"])
    doubled = sum(client.gather(client.map(lambda x: 2 * x, range(10))))
"""


async def brought(here: Site, which: str) -> dict[str, Any]:
    """What has come home of one that has ended well, with nothing left of it."""
    await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended", 100)
    assert here.record(which).outcome == burst.OK, here.record(which).message
    await here.until(lambda: not any(pod.runs for pod in here.cluster.pods_.values()))
    names: dict[str, Any] = {}
    capture.take(burst.read_buffers(here.bursts.result(here.record(which), 0)), names, here.capsule)
    return names


def test_a_simulator_in_a_pod_of_its_own_serves_the_worker_and_ends_with_it() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, ROLES, most=1, roles=[{"name": "simulator", "count": 1}])
        names = await brought(here, which)
        assert (names["answer"], names["role"]) == (42, "worker")
        said = [event for event in here.events(which) if event["t"] == burst.OUT]
        assert [(each["as"], each["rank"], each["text"]) for each in said] == [("simulator 0", 1, "simulator 0 of 1\n")]

    run(story)


@pytest.mark.parametrize(
    "why", ["Its Job was deleted in the cluster.", "Its Job has failed: Job was active longer than specified deadline."]
)
def test_a_job_that_makes_no_pods_any_more_ends_a_cell_that_still_waits_for_them(why: str) -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        here.cluster.held.add(0)
        which = await here.begin(kernel, "print(RANK)", most=1)
        await here.until(lambda: "0/1 pods run" in str(here.events(which)))
        assert here.record(which).state == "running", "there may yet be room"
        here.cluster.deleted = why
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended")
        assert (here.record(which).outcome, here.record(which).message) == (burst.LOST, why)

    run(story)


def test_what_a_simulator_fails_of_is_told_by_its_name() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        cell = "import time\nif ROLE == 'simulator':\n    raise LookupError('no such world')\ntime.sleep(600)"
        which = await here.begin(kernel, cell, most=1, roles=[{"name": "simulator", "count": 1}])
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended", 100)
        assert here.record(which).message == "Simulator 0 failed: LookupError: no such world"

    run(story)


@needs_dask
@pytest.mark.timeout(200)
def test_dask_in_pods_is_encrypted_and_has_a_worker_in_each() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, DASK, workers=2, most=2, engine="dask")
        names = await brought(here, which)
        assert (names["scheme"], names["count"], names["doubled"]) == ("tls", 2, 90)

    run(story)


SUM = """
import os, torch, torch.distributed as dist
total = torch.tensor(RANK + 1)
dist.all_reduce(total)
found = int(total), RANK, WORLD_SIZE, LOCAL_RANK, os.environ["LOCAL_WORLD_SIZE"]
print("rank", RANK)
"""


@needs_torch
@pytest.mark.timeout(200)
def test_torchrun_in_each_pod_has_all_ranks_of_its_worker_and_each_gives_back_what_is_its_own() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, SUM, workers=2, most=2, procs=2, engine="torch", give_back=None, init=True)
        assert (await brought(here, which))["found"] == (10, 0, 4, 0, "2")
        for rank in (1, 2, 3):
            names: dict[str, Any] = {}
            capture.take(burst.read_buffers(here.bursts.result(here.record(which), rank)), names, here.capsule)
            assert names["found"] == (10, rank, 4, rank % 2, "2")
        printed = sorted((event["rank"], event["text"]) for event in here.events(which) if event["t"] == burst.OUT)
        assert printed == [(rank, f"rank {rank}\n") for rank in range(4)]
        states = [(event["running"], event["of"]) for event in here.events(which) if event["t"] == burst.STATE]
        assert states[-1] == (4, 4)

    run(story)


def test_what_the_third_of_four_ranks_fails_of_is_told_by_its_number() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        cell = "import time\nif RANK == 2:\n    raise LookupError('one of four')\ntime.sleep(600)"
        which = await here.begin(kernel, cell, workers=2, most=2, procs=2)
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended", 100)
        assert here.record(which).message == "Rank 2 failed: LookupError: one of four"
        assert (here.bursts.folder_of(here.record(which)).path / burst.FAILURES / "2").is_file()
        await here.until(lambda: not any(pod.runs for pod in here.cluster.pods_.values()))

    run(story)


def test_a_display_of_megabytes_in_a_pod_comes_whole_and_holds_up_nothing() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        cell = "class Wide:\n    def _repr_html_(self): return 'x' * 3_000_000\ndisplay(Wide())\nprint('after')\nmade = 1"
        which = await here.begin(kernel, cell, most=1)
        assert (await brought(here, which))["made"] == 1
        said = [event for event in here.events(which) if event["t"] in (burst.SHOW, burst.OUT)]
        assert [event["t"] for event in said] == [burst.SHOW, burst.OUT]
        assert len(said[0]["content"]["data"]["text/html"]) == 3_000_000

    run(story)
