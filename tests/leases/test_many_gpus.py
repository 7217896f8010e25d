"""Leases of several GPUs, several nodes, and quotas."""

from __future__ import annotations

from gateway.leases.events import Deny, Executing, Grant, KernelGone, Park
from gateway.leases.policy import Policy
from gateway.protocol.model import Phase

from .world import World


def parks(world: World) -> list[str]:
    return [command.kernel_id for command in world.log if isinstance(command, Park)]


def test_a_lease_of_several_is_all_or_nothing():
    world = World(gpus=4)
    world.kernel("a", count=2)
    world.kernel("b", count=3)
    world.run("a")
    world.run("b")
    assert len(world.gpus("a")) == 2
    assert world.gpus("b") == ()
    world.die("a")
    assert len(world.gpus("b")) == 3


def test_the_smallest_set_of_idle_holders_gives_way():
    world = World(gpus=4)
    for name, count in (("small", 1), ("big", 3)):
        world.kernel(name, count=count)
        world.ran(name)
        world.advance(1.0)
    world.kernel("b", count=3)
    world.run("b")
    assert parks(world) == ["big"], "small is idle for longer, but big alone is enough"


def test_several_holders_give_way_together_or_none():
    world = World(gpus=3)
    for name in "abc":
        world.kernel(name)
        world.ran(name)
    world.run("c")
    world.kernel("big", count=3)
    world.run("big")
    assert parks(world) == [], "c is busy, so parking a and b would serve nobody"
    world.done("c")
    assert sorted(parks(world)) == ["a", "b", "c"]
    assert len(world.gpus("big")) == 3


def test_small_ones_pass_a_big_one_that_cannot_be_served_whole_for_a_while():
    world = World(gpus=2, reserve_after=60.0)
    world.kernel("a")
    world.run("a")
    world.kernel("big", count=2)
    world.run("big")
    world.kernel("c")
    world.run("c")
    assert len(world.gpus("c")) == 1


def test_then_gpus_are_gathered_for_it():
    world = World(gpus=2, reserve_after=60.0)
    for name in "ac":
        world.kernel(name)
        world.run(name)
    world.kernel("big", count=2)
    world.run("big")
    world.advance(60.0)
    world.done("a")
    assert parks(world) == ["a"], "though c is still busy"
    world.kernel("d")
    world.run("d")
    world.run("a")
    assert {world.phase("a"), world.phase("d")} == {Phase.WAITING}
    world.done("c")
    assert len(world.gpus("big")) == 2


def test_also_those_of_kernels_that_have_been_idle_for_long():
    world = World(gpus=2, reserve_after=60.0)
    for name in "ac":
        world.kernel(name)
        world.run(name)
    world.done("a")
    world.kernel("big", count=2)
    world.run("big")
    world.advance(59.0)
    assert parks(world) == []
    world.advance(1.0)
    assert parks(world) == ["a"]


def test_a_big_one_does_not_starve_behind_a_stream_of_small_ones():
    world = World(gpus=2, min_hold=5.0, reserve_after=30.0)
    for i in range(4):
        world.kernel(f"s{i}")
        world.run(f"s{i}")
    world.kernel("big", count=2)
    world.run("big")
    for step in range(60):
        world.advance(7.0)
        holders = [k for k in world.kernels if world.phase(k) is Phase.HOLDING]
        if "big" in holders:
            break
        busy = holders[step % len(holders)]  # they never end at the same time
        world.kernels[busy].running = 0
        world.says(world.kernels[busy])
        world.run(busy)
    assert world.phase("big") is Phase.HOLDING
    assert world.now < 90


def test_what_a_parked_holder_leaves_beyond_the_need_serves_the_next():
    world = World(gpus=4)
    world.kernel("big", count=4)
    world.ran("big")
    for name in "ab":
        world.kernel(name)
    world.run("a")
    world.run("b")
    assert parks(world) == ["big"]
    assert len(world.gpus("a") + world.gpus("b")) == 2


def test_the_nodes_lines_are_apart():
    world = World(gpus=1, nodes=("near", "far"))
    for name, node in (("a", "near"), ("b", "far"), ("c", "near")):
        world.kernel(name, node=node)
        world.run(name)
    assert (world.gpus("a"), world.gpus("b"), world.phase("c")) == (("n0",), ("f0",), Phase.WAITING)
    world.done("b")
    assert world.phase("c") is Phase.WAITING, "its node is near"
    world.done("a")
    assert world.gpus("c") == ("n0",)


# quotas


def test_a_waiter_over_its_users_quota_neither_presses_on_nor_blocks_others():
    world = World(gpus=2, gpus_per_user=1)
    world.kernel("a1", "ana")
    world.kernel("a2", "ana")
    world.kernel("b1", "bo")
    world.ran("b1")
    world.run("a1")
    world.run("a2")
    assert world.phase("a2") is Phase.WAITING
    assert parks(world) == []
    world.kernel("c1", "cy")
    world.run("c1")
    assert world.phase("c1") is Phase.HOLDING
    assert parks(world) == ["b1"]


def test_it_presses_on_its_own_users_idle_kernels():
    world = World(gpus=3, gpus_per_user=1)
    world.kernel("b1", "bo")
    world.ran("b1")
    world.kernel("a1", "ana")
    world.ran("a1")
    world.kernel("a2", "ana")
    world.run("a2")
    assert parks(world) == ["a1"]
    assert world.phase("a2") is Phase.HOLDING


def test_also_on_those_of_other_nodes():
    world = World(gpus=1, nodes=("near", "far"), gpus_per_user=1)
    world.kernel("a1", "ana", node="near")
    world.kernel("a2", "ana", node="far")
    world.run("a1")
    world.run("a2")
    assert world.phase("a2") is Phase.WAITING
    world.done("a1")
    assert world.gpus("a2") == ("f0",)


def test_its_own_kernels_gpu_may_be_the_very_one_it_gets():
    world = World(gpus=2, gpus_per_user=1)
    world.kernel("b1", "bo")
    world.run("b1")
    world.kernel("a1", "ana")
    world.ran("a1")
    world.kernel("a2", "ana")
    world.run("a2")
    assert parks(world) == ["a1"]
    assert world.gpus("a2") == world.book.kernels["a1"].home


def test_own_and_other_kernels_may_have_to_give_way_together():
    world = World(gpus=2, gpus_per_user=2)
    world.kernel("a1", "ana")
    world.ran("a1")
    world.kernel("b1", "bo")
    world.ran("b1")
    world.kernel("a2", "ana", count=2)
    world.run("a2")
    assert sorted(parks(world)) == ["a1", "b1"]
    assert len(world.gpus("a2")) == 2


def test_the_minimum_hold_of_own_kernels_is_waited_for():
    world = World(gpus=1, nodes=("near", "far"), gpus_per_user=1, min_hold=30.0)
    world.kernel("a1", "ana", node="near")
    world.ran("a1")
    world.kernel("a2", "ana", node="far")
    world.run("a2")
    assert world.phase("a2") is Phase.WAITING
    world.advance(30.0)
    assert world.phase("a2") is Phase.HOLDING


def test_a_quota_holds_for_gpus_that_come_free_together():
    world = World(gpus=2, gpus_per_user=1)
    world.kernel("b", "bo", count=1)
    world.kernel("c", "cy", count=1)
    world.run("b")
    world.run("c")
    for name in ("a1", "a2"):
        world.kernel(name, "ana")
        world.run(name)
    del world.kernels["b"], world.kernels["c"]
    world.tell(KernelGone("b"), KernelGone("c"))
    assert [world.phase(name) for name in ("a1", "a2")] == [Phase.HOLDING, Phase.WAITING]


def test_a_quota_holds_for_holders_that_could_give_way_together():
    world = World(gpus=2, gpus_per_user=1)
    for name in "bc":
        world.kernel(name)
        world.run(name)
    for name in ("a1", "a2"):
        world.kernel(name, "ana")
        world.run(name)
    world.auto = False
    world.tell(Executing("b", False), Executing("c", False))
    assert len(parks(world)) == 1


def test_but_not_for_a_gpu_that_cannot_be_had():
    world = World(gpus=1, nodes=("near", "far"), gpus_per_user=1)
    world.kernel("b1", "bo", node="far")
    world.run("b1")
    world.kernel("a1", "ana", node="near")
    world.ran("a1")
    world.kernel("a2", "ana", node="far")
    world.run("a2")
    assert parks(world) == []


def test_a_request_above_the_quota_is_denied_at_once():
    world = World(gpus=4, gpus_per_user=2)
    world.kernel("k", count=3)
    world.run("k")
    assert world.last(Deny).reason == "impossible_request"
    assert "Leases.gpus_per_user" in world.last(Deny).message


def test_a_raised_quota_serves_who_waits():
    world = World(gpus=2, gpus_per_user=1)
    for name in ("a1", "a2"):
        world.kernel(name, "ana")
        world.run(name)
    assert world.phase("a2") is Phase.WAITING
    world.carry(world.book.set_policy(Policy(gpus_per_user=2), world.now))
    assert world.last(Grant).kernel_id == "a2"
