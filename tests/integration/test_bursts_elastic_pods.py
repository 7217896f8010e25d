"""Elastic bursts in pods, whose pods are processes here: gateway and ranks are real, and no committed step is lost or done twice."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.burst.bursts import Bursts
from gateway.burst.record import Record
from gateway.magics import capture
from gateway.protocol import burst
from gateway.protocol.errors import BadRequest
from gateway.settings import Bursts as Settings
from tests.broker.world import World
from tests.doubles.fake_supervisor import FakeSupervisor
from tests.doubles.pod_processes import PodProcesses
from tests.integration.machine import REPOSITORY

COUNTING = (
    "import pathlib, time\nfrom gateway import elastic\nstate = elastic.State(seen=[])\nfor step in state.range('step', 1 << 20):\n"
    "    if pathlib.Path({enough!r}).exists(): break\n"
    "    time.sleep(0.05)\n    state.seen.append((step, WORLD_SIZE))\n    print('at', step, 'of', WORLD_SIZE, flush=True)\n"
    "    {inside}\n    state.commit()\nseen = state.seen\n"
)


class Site:
    """One gateway after the other, over one cluster."""

    def __init__(self, world: World, cluster: PodProcesses, root: Path, settings: Settings) -> None:
        self.world, self.cluster, self.root, self.settings = world, cluster, root, settings
        self.bursts: Bursts
        self.enough = root.parent / "enough"  # a file: the cell's loop is to end

    async def up(self) -> None:
        self.bursts = Bursts(self.root, self.settings, self.world.broker)
        self.bursts.held()
        await self.bursts.start()

    def counting(self, inside: str = "pass") -> str:
        """A cell that commits each step and says so, until it is enough."""
        return COUNTING.format(enough=str(self.enough), inside=inside)

    async def begin(self, supervisor: FakeSupervisor, cell: str, **wanted: Any) -> str:
        shown = self.bursts.create(supervisor, {"workers": 1, "most": 3, "engine": "none", **wanted})["burst"]
        folder = self.bursts.folder_of(self.bursts.find(shown["id"])).path
        self.capsule = capsule = capture.pack(cell, {}, capture.Options(header="%%distributed", number=1))
        burst.write_buffers(folder / burst.CAPSULE, capsule.blobs)
        request = {
            "python": sys.executable, "version": list(sys.version_info[:3]), "packages": str(REPOSITORY), "cwd": "/tmp",
            "env": {"PATH": os.environ["PATH"]}, "path": [], "pid": 1, "started": 1, "out": None, "save_every": 1.0,
            "init": wanted.get("init", False), "give_back": wanted.get("give_back", [0]), "compress": None,
        }  # fmt: skip
        burst.write_json(folder / burst.REQUEST, request)
        self.bursts.begin(self.bursts.find(shown["id"]))
        return str(shown["id"])

    def record(self, which: str) -> Record:
        return self.bursts.find(which)

    def events(self, which: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.bursts.folder_of(self.record(which)).lines()]

    def printed(self, which: str) -> str:
        return "".join(event["text"] for event in self.events(which) if event["t"] == burst.OUT and event["rank"] == 0)

    def told(self, which: str) -> str:
        return "\n".join(str(event.get("text", "")) for event in self.events(which) if event["t"] == burst.NOTE)

    async def until(self, holds: Callable[[], Any], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.02)

    async def works(self, which: str, workers: int) -> None:
        """Until so many workers have done another step."""
        before = self.printed(which).count(f" of {workers}\n")
        await self.until(lambda: self.printed(which).count(f" of {workers}\n") > before + 1)

    async def end(self, which: str) -> list[int]:
        """The numbers of workers that its steps were done with, once it has ended well; each step was done exactly once."""
        self.enough.touch()
        await self.until(lambda: self.bursts.shown(self.record(which))["state"] == "ended")
        assert self.record(which).outcome == burst.OK, self.record(which).message
        names: dict[str, Any] = {}
        capture.take(burst.read_buffers(self.bursts.result(self.record(which), 0)), names, self.capsule)
        assert [step for step, _ in names["seen"]] == list(range(len(names["seen"])))
        sizes = [world for _, world in names["seen"]]
        return [size for at, size in enumerate(sizes) if not at or sizes[at - 1] != size]


@asynccontextmanager
async def site(**settings: Any) -> AsyncIterator[Site]:
    with tempfile.TemporaryDirectory(prefix="eg", dir="/tmp") as folder:
        (root := Path(folder, "b")).mkdir()
        world, cluster = World(), PodProcesses(Path(folder))
        world.backend.jobs = cluster
        await world.broker.start()
        found = Site(world, cluster, root, Settings(**settings))
        await found.up()
        try:
            yield found
        finally:
            await found.bursts.stop()
            cluster.close()
            await world.broker.stop()


def run(story: Callable[[Site, FakeSupervisor], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def whole() -> None:
        async with site(**settings) as found:
            await story(found, await found.world.kernel())

    asyncio.run(asyncio.wait_for(whole(), 120))


def test_workers_come_and_go_as_asked() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting())
        await here.works(which, 1)
        assert len(here.cluster.pods_) == 1
        here.bursts.scale(here.record(which), 3)
        await here.works(which, 3)
        assert here.record(which).workers == 3
        here.bursts.scale(here.record(which), 1)
        await here.works(which, 1)
        assert await here.end(which) == [1, 3, 1]
        assert not any(pod.runs and not pod.told for pod in here.cluster.pods_.values())

    run(story)


def test_workers_of_two_ranks_each_come_and_go_with_both() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting(), procs=2, give_back=None)
        await here.works(which, 2)
        assert len(here.cluster.pods_) == 1
        here.bursts.scale(here.record(which), 2)
        await here.works(which, 4)
        assert here.record(which).workers == 2
        states = [(event["running"], event["of"]) for event in here.events(which) if event["t"] == burst.STATE]
        assert states[-1] == (4, 4)
        await here.until(lambda: here.printed(which).count(" of 4\n") > 40)  # some of it has been saved
        here.cluster.kill("pod-2")
        await here.until(lambda: "Other workers go on from its last save" in here.told(which))
        await here.works(which, 2)
        assert await here.end(which) == [2, 4, 2]
        given = sorted(file.name for file in here.bursts.folder_of(here.record(which)).path.glob("out/*[0-9]"))
        assert given == ["0", "1"], "of each rank that there was in the end"

    run(story)


def test_nobody_waits_for_a_rank_that_is_through_while_another_of_its_pod_goes_on() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting("if RANK == 1 and step == 3: break"), procs=2)
        await here.until(lambda: " 12 of 2" in here.printed(which))
        here.bursts.scale(here.record(which), 2)
        await here.until(lambda: any(pod.flex for pod in here.cluster.pods_.values()))
        await here.until(lambda: any(event.get("event", event)["t"] == burst.THROUGH for event in here.events(which)))
        await here.works(which, 2)
        assert await here.end(which) == [2]

    run(story)


def test_idle_gpus_are_taken_and_given_back_to_whoever_waits_on_their_node() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        waiting: list[Any] = []
        here.world.broker.guests.waiting = lambda patience: waiting  # type: ignore[method-assign]
        which = await here.begin(kernel, here.counting(), gpus=1)
        await here.works(which, 1)
        here.cluster.idle = 2
        await here.works(which, 3)
        assert here.world.broker.snapshot()["elsewhere"] == [{"holder": which, "user": "ada", "gpus": 3}]
        here.cluster.idle = 0

        class Waiter:
            node, count, label, resource = "node", 1, "bob's", "example.com/gpu"

        waiting.append(Waiter)
        await here.works(which, 2)
        await here.until(lambda: here.printed(which).count(" of 2\n") > 60)  # its GPU takes a while to come
        assert await here.end(which) == [1, 3, 2]
        assert "1 GPU back for bob's" in here.told(which)
        assert here.world.broker.snapshot()["elsewhere"] == []

    run(story, grow_after=0.5)


def test_a_burst_takes_no_more_than_its_users_quota() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        here.cluster.idle = 2
        here.world.broker.elsewhere.hold("other", "ada", 1)
        here.world.broker.rules.change({"gpus_per_user": 2})
        which = await here.begin(kernel, here.counting(), gpus=1)
        await here.works(which, 1)
        asked = here.cluster.asked
        await here.until(lambda: here.cluster.asked > asked, 30)  # it has seen that there would be more
        assert await here.end(which) == [1]
        with pytest.raises(Exception, match="ask for 3 GPUs, and one user may hold 2"):
            await here.begin(kernel, here.counting(), gpus=1, workers=3, most=3)

    run(story, grow_after=0.5)


@pytest.mark.parametrize("killed", ["pod-1", "pod-2"])
def test_a_pod_that_is_lost_costs_what_was_done_since_the_last_save_and_is_made_again(killed: str) -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting(), workers=2)
        await here.works(which, 2)
        await here.until(lambda: here.printed(which).count("\n") > 30)
        here.cluster.kill(killed)
        await here.until(lambda: "Other workers go on" in here.told(which))
        await here.works(which, 2)
        assert await here.end(which) == [2]
        assert "Other workers go on from its last save (step " in here.told(which)
        assert len(here.cluster.pods_) == 3

    run(story)


def test_a_pod_that_the_cluster_takes_away_leaves_at_a_commit() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting(), workers=2)
        await here.works(which, 2)
        here.cluster.delete("pod-1")
        await here.until(lambda: len(here.cluster.pods_) == 3)
        await here.works(which, 2)
        assert await here.end(which) == [2]
        assert here.told(which) == "", "nothing was lost"
        assert len(here.cluster.pods_) == 3

    run(story)


def test_the_next_gateway_finishes_the_change_that_one_had_begun() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting())
        await here.works(which, 1)
        here.bursts.scale(here.record(which), 2)
        await here.until(
            lambda: any('"group"' in json.dumps(event) and event.get("event", {}).get("number") == 2 for event in here.events(which))
        )
        await here.bursts.stop()
        await here.up()
        await here.works(which, 2)
        assert await here.end(which) == [1, 2]

    run(story)


def test_without_a_commit_a_lost_pod_ends_the_burst_and_nothing_begins_anew() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, "import time\nprint('begun', flush=True)\ntime.sleep(600)", workers=2)
        await here.until(lambda: "begun" in here.printed(which))
        here.bursts.scale(here.record(which), 3)
        here.cluster.kill("pod-2")
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended")
        assert (here.record(which).outcome, here.record(which).message) == (burst.ERROR, "The worker's pod was killed.")
        assert here.printed(which).count("begun") == 1

    run(story)


def test_an_error_of_the_cell_is_told_as_what_it_is() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting(inside="assert step < 9, 'too far'"), workers=2)
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended")
        assert "AssertionError: too far" in here.record(which).message
        assert any(event["t"] == burst.FAILED for event in here.events(which))

    run(story)


def test_one_that_is_cancelled_in_the_middle_of_a_change_is_cancelled_and_nothing_is_left_of_it() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting())
        await here.works(which, 1)
        here.bursts.scale(here.record(which), 3)
        await here.until(lambda: len(here.cluster.pods_) == 3)
        here.bursts.cancel(here.record(which))
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended")
        assert here.record(which).outcome == burst.CANCELLED
        await here.until(lambda: not any(pod.runs for pod in here.cluster.pods_.values()))

    run(story)


def test_one_whose_job_is_deleted_in_the_cluster_ends_and_says_so() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting())
        await here.works(which, 1)
        here.cluster.deleted = "Its Job was deleted in the cluster."
        here.cluster.kill("pod-1")
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended")
        assert (here.record(which).outcome, here.record(which).message) == (burst.LOST, "Its Job was deleted in the cluster.")

    run(story)


def test_a_state_that_is_too_large_to_be_kept_ends_the_burst_and_says_so() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting("state.large = 'x' * (1 << 20)"))
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended")
        assert here.record(which).outcome == burst.ERROR
        assert "can't be kept at the gateway (at most Bursts.capsule_bytes)" in here.record(which).message

    run(story, capsule_bytes=1 << 18)


def test_a_result_that_is_too_large_to_be_kept_stays_there_and_the_rest_comes_home() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, "large, small = bytes(1 << 20), 7")
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended")
        assert here.record(which).outcome == burst.OK, here.record(which).message
        names: dict[str, Any] = {}
        report = capture.take(burst.read_buffers(here.bursts.result(here.record(which), 0)), names, here.capsule)
        assert names == {"small": 7} and "write it to a file" in report.skipped["large"]

    run(story, capsule_bytes=1 << 18)


def test_numbers_of_bursts_without_a_name_of_their_own_go_on_from_the_highest_that_is_kept() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        named = [here.record(await here.begin(kernel, "1", **wanted)).name for wanted in ({"name": "burst-7"}, {}, {"name": "mine"}, {})]
        assert named == ["burst-7", "burst-8", "mine", "burst-9"]

    run(story)


def test_a_worker_beyond_the_least_that_the_scheduler_takes_away_leaves_at_a_commit_and_is_not_made_again() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        here.cluster.idle = 2
        which = await here.begin(kernel, here.counting(), gpus=1, most=2)
        await here.works(which, 2)
        here.cluster.idle = 0
        here.cluster.delete("pod-2")
        await here.works(which, 1)
        assert await here.end(which) == [2, 1]
        assert "Other workers go on" not in here.told(which), "nothing was lost"
        assert len(here.cluster.pods_) == 2

    run(story)


def test_an_engine_whose_workers_can_not_come_and_go_in_pods_is_refused_before_anything_starts() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        with pytest.raises(BadRequest, match=r"In pods, workers of -e mpi keep their number: -w 1, say\. Elastic: none, torch\."):
            await here.begin(kernel, here.counting(), engine="mpi")
        assert here.bursts.all() == []

    run(story)
