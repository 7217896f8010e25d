"""Elastic bursts in a queue that takes back what it gave: gateway and ranks are real, pods are processes, the queue is the test's hands."""

from __future__ import annotations

from gateway.protocol import burst
from tests.doubles.fake_supervisor import FakeSupervisor
from tests.integration.test_bursts_elastic_pods import Site, run

PREEMPTED = "Preempted to accommodate a workload"
SLEEPING = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


def waits(here: Site, which: str) -> str:
    return "\n".join(str(event["text"]) for event in here.events(which) if event["t"] == burst.WAITS)


def test_workers_more_that_the_queue_has_no_place_for_stay_in_it_and_its_words_are_told_once() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        here.cluster.full = True
        which = await here.begin(kernel, here.counting(), queue="research")
        await here.works(which, 1)
        here.bursts.scale(here.record(which), 3)
        await here.until(lambda: "workers more wait" in here.told(which))
        await here.works(which, 1)
        here.cluster.let(2)
        await here.works(which, 2)
        await here.until(lambda: "A worker more waits" in here.told(which))
        here.cluster.let(1)
        await here.works(which, 3)
        assert await here.end(which) == [1, 2, 3]
        assert here.cluster.begun == [1, 2], "none was made again"
        told = here.told(which)
        assert told.count("2 workers more wait in the queue research. insufficient unused quota") == 1
        assert told.count("A worker more waits in the queue research. insufficient unused quota") == 1

    run(story)


def test_of_fewer_workers_those_go_first_that_still_wait_in_the_queue() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        here.cluster.full = True
        which = await here.begin(kernel, here.counting(), queue="research")
        await here.works(which, 1)
        here.bursts.scale(here.record(which), 3)
        await here.until(lambda: here.cluster.begun == [1, 2])
        here.cluster.let(2)
        await here.works(which, 2)
        here.bursts.scale(here.record(which), 2)
        await here.until(lambda: here.record(which).flex == [2])
        await here.works(which, 2)
        assert await here.end(which) == [1, 2]

    run(story)


def test_for_idle_gpus_no_more_workers_are_queued_than_would_find_one() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        here.cluster.full, here.cluster.idle = True, 2
        which = await here.begin(kernel, here.counting(), queue="research", gpus=1, most=6)
        await here.until(lambda: len(here.cluster.begun) == 2)
        asked = here.cluster.asked
        await here.until(lambda: here.cluster.asked > asked + 1)
        assert await here.end(which) == [1]
        assert here.cluster.begun == [1, 2]

    run(story, grow_after=0.5)


def test_a_worker_more_that_the_queue_takes_back_leaves_at_a_commit_and_its_words_are_told() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting(), queue="research")
        await here.works(which, 1)
        here.bursts.scale(here.record(which), 2)
        await here.works(which, 2)
        here.cluster.take(1)
        await here.works(which, 1)
        await here.until(lambda: here.record(which).going == [])
        assert await here.end(which) == [1, 2, 1]
        assert f"Kueue takes a worker back: {PREEMPTED}" in here.told(which)
        assert "Other workers go on" not in here.told(which), "nothing was lost"

    run(story)


def test_a_burst_whose_least_are_taken_back_waits_in_its_queue_and_goes_on_where_it_was() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, here.counting(), queue="research", workers=2)
        await here.works(which, 2)
        here.bursts.scale(here.record(which), 3)
        await here.works(which, 3)
        here.cluster.take(0)
        await here.until(lambda: f"waits in the queue research. {PREEMPTED}" in waits(here, which))
        await here.until(lambda: here.record(which).flex == here.record(which).going == [])
        assert not any(pod.runs and not pod.told for pod in here.cluster.pods_.values()), "nobody has a place for nothing"
        here.cluster.let(0)
        await here.works(which, 3)
        sizes = await here.end(which)
        assert (sizes[:2], sizes[-1]) == ([2, 3], 3)
        assert "Other workers go on" not in here.told(which), "nothing was lost"

    run(story)


def test_without_a_commit_it_ends_in_the_queues_words_and_is_not_begun_again() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        which = await here.begin(kernel, SLEEPING, queue="research", workers=2)
        await here.until(lambda: here.printed(which).count("begun") == 1)
        here.cluster.take(0)
        for pod in list(here.cluster.pods_):
            here.cluster.kill(pod)  # its time to leave is over
        await here.until(lambda: here.bursts.shown(here.record(which))["state"] == "ended")
        assert here.record(which).outcome == burst.LOST
        assert f"Kueue took its pods away: {PREEMPTED}. Run the cell again" in here.record(which).message

    run(story)


def test_one_that_waits_in_its_queue_keeps_no_other_from_gpus() -> None:
    async def story(here: Site, kernel: FakeSupervisor) -> None:
        here.cluster.held.add(0)
        first = await here.begin(kernel, here.counting(), queue="research", gpus=1)
        await here.until(lambda: "waits in the queue research. insufficient unused quota" in waits(here, first))
        second = await here.begin(kernel, here.counting(), gpus=1)
        await here.until(lambda: here.record(second).job)
        assert "waits until" not in waits(here, second)
        for which in (first, second):
            here.bursts.cancel(here.record(which))
            await here.until(lambda which=which: here.bursts.shown(here.record(which))["state"] == "ended")

    run(story)
