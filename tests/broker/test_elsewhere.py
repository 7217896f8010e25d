"""GPUs that a cluster's scheduler gives to a user's bursts: counted in quotas and in the fair order, as leases are."""

from __future__ import annotations

from gateway.broker.elsewhere import Elsewhere
from gateway.protocol.model import Phase
from tests.broker.world import World, run
from tests.doubles.fake_backend import gpu


def test_what_a_burst_has_counts_against_the_quota_of_its_users_kernels_until_it_ends() -> None:
    async def story(world: World) -> None:
        world.broker.elsewhere.hold("burst", "ada", 2)
        kernel = await world.kernel("k1", "ada")
        kernel.want()
        await world.until(lambda: any(each.place and each.place.quota for each in world.broker.book.queue()))
        world.broker.book.validate()
        assert world.broker.snapshot()["elsewhere"] == [{"holder": "burst", "user": "ada", "gpus": 2}]
        world.broker.elsewhere.hold("burst", "ada", 0)
        await world.phase(kernel, Phase.HOLDING)
        assert world.broker.snapshot()["elsewhere"] == []

    run(story, gpu("GPU-0"), gpus_per_user=2)


def test_only_what_has_changed_is_told_and_what_runs_is_gpu_time_of_its_own() -> None:
    async def story(world: World) -> None:
        told = []
        elsewhere = Elsewhere(world.broker.book, lambda events: (told.extend(events), world.broker.book.handle_all(list(events), 0.0)))
        for running in ({}, {}, {"node-2": 1, "node-1": 1}, {"node-1": 1, "node-2": 1}, {"node-1": 1}):
            elsewhere.hold("burst", "ada", 2, running)
        assert [(each.gpus, each.running, each.nodes) for each in told] == [(2, 0, ()), (2, 2, ("node-1", "node-2")), (2, 1, ("node-1",))]
        elsewhere.hold("burst", "ada", 0)
        elsewhere.hold("burst", "ada", 0)
        assert len(told) == 4

    run(story, gpu("GPU-0"))


def test_what_a_users_kernels_have_counts_against_the_quota_of_their_bursts_and_not_of_others() -> None:
    async def story(world: World) -> None:
        await world.executing(await world.kernel("k1", "ada"))
        assert world.broker.elsewhere.allowed("burst", "ada") == (2, "one user may hold 3 (Leases.gpus_per_user)")
        assert world.broker.elsewhere.allowed("burst", "bob")[0] == 3
        world.broker.elsewhere.hold("burst", "ada", 2)
        assert world.broker.elsewhere.allowed("burst", "ada")[0] == 2, "what it has itself is its own"
        assert world.broker.elsewhere.allowed("other", "ada")[0] == 0
        assert world.broker.elsewhere.most("ada") == 3

    run(story, gpu("GPU-0"), gpus_per_user=3)


def test_where_there_is_no_quota_there_is_no_limit() -> None:
    async def story(world: World) -> None:
        assert world.broker.elsewhere.allowed("burst", "ada") == (None, "")
        assert world.broker.elsewhere.most("ada") is None

    run(story, gpu("GPU-0"))


def test_who_has_gpus_by_a_burst_comes_after_who_has_none() -> None:
    async def story(world: World) -> None:
        first = await world.kernel("k0", "eve")
        await world.executing(first)
        world.broker.elsewhere.hold("burst", "ada", 1)
        world.passes(60.0)
        ada, bob = await world.kernel("k1", "ada"), await world.kernel("k2", "bob")
        ada.want()
        await world.until(lambda: len(world.broker.book.queue()) == 1)
        bob.want()
        await world.until(lambda: len(world.broker.book.queue()) == 2)
        assert [each.user for each in world.broker.book.queue()] == ["bob", "ada"]

    run(story, gpu("GPU-0"))
