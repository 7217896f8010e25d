"""Who waits for a GPU and is no kernel: it counts like one, but the site's rules for people aren't for it."""

from __future__ import annotations

from gateway.leases.events import Grant, KernelGone, Park, ReleaseAsked
from gateway.leases.levels import Levels
from gateway.leases.policy import Policy
from gateway.protocol.model import Phase, Rung

from .world import World


def test_an_idle_kernel_gives_way_for_it_and_it_is_granted_what_is_left():
    world = World(min_hold=0.0)
    world.kernel("a")
    world.ran("a")
    world.outsider("pod")
    assert world.phase("a") is Phase.PARKED
    assert [command.gpus for command in world.outsiders["pod"] if isinstance(command, Grant)] == [("l0",)]


def test_neither_quotas_nor_the_longest_wait_are_for_it():
    world = World(gpus=2, policy=Levels(Policy(gpus_per_user=1, gpus_per_kernel=1, queue_timeout=10.0)))
    for name in ("a", "b"):
        world.kernel(name)
        world.run(name)
    world.outsider("pod", count=2)
    world.advance(1000.0)
    assert world.queue() == ["pod"] and world.outsiders["pod"] == []
    for name in ("a", "b"):
        world.done(name)
    assert [command.gpus for command in world.outsiders["pod"]] == [("l0", "l1")]


def test_nothing_is_gathered_for_it_one_by_one():
    world = World(gpus=2, reserve_after=0.0, min_hold=0.0)
    world.kernel("long")
    world.run("long")
    world.outsider("pod", count=2)
    world.advance(100.0)
    world.kernel("short")
    world.run("short")
    assert world.phase("short") is Phase.HOLDING, "the cluster would give it to others, too"


def at_home() -> World:
    """Two GPUs, each home of a parked state that comes back to no other."""
    world = World(gpus=2, rung=Rung.SAME_GPU, min_hold=0.0)
    for name in ("a", "b"):
        world.kernel(name)
        world.ran(name)
    for name in ("a", "b"):
        world.tell(ReleaseAsked(name))
    assert {world.phase("a"), world.phase("b")} == {Phase.PARKED}
    return world


def test_a_gpu_that_parked_states_need_back_is_not_for_it_and_it_is_seen_to_wait():
    world = at_home()
    world.outsider("pod")
    assert world.queue() == ["pod"] and world.outsiders["pod"] == []
    world.ran("a")
    world.ran("b")
    assert world.queue() == ["pod"]
    assert not [command for command in world.log if isinstance(command, Park) and command.why == "reclaimed"], "that would give it nothing"
    world.tell(KernelGone("b"))
    assert [command.gpus for command in world.outsiders["pod"]] == [("l1",)]
    world.run("a")
    assert world.gpus("a") == ("l0",)


def test_it_is_granted_a_home_as_soon_as_the_last_state_of_it_is_gone():
    world = at_home()
    world.outsider("pod")
    world.tell(KernelGone("a"))
    assert [command.gpus for command in world.outsiders["pod"]] == [("l0",)]


def test_the_only_gpu_of_a_node_is_for_it_as_whoever_comes_back_finds_the_same():
    world = World(rung=Rung.SAME_GPU, min_hold=0.0)
    world.kernel("a")
    world.ran("a")
    world.outsider("pod")
    assert world.phase("a") is Phase.PARKED
    assert [command.gpus for command in world.outsiders["pod"]] == [("l0",)]
