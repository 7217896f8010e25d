"""A node that an administrator takes down: what runs there ends by itself, and nothing new gets a GPU."""

from __future__ import annotations

from gateway.leases.events import Deny, NodeDrained, Park
from gateway.protocol.model import Phase, Rung

from .world import World


def test_an_idle_kernel_gives_its_gpu_back_at_once_whatever_hold_it_has():
    world = World(min_hold=100.0)
    world.kernel("a").hold = 1000.0
    world.ran("a")
    world.tell(NodeDrained("local", True))
    assert world.log[-1] == Park("a", world.log[-1].order, "drained")
    assert world.phase("a") is Phase.PARKED


def test_a_running_cell_ends_first_and_then_the_gpu_comes_back():
    world = World()
    world.kernel("a")
    world.run("a")
    world.tell(NodeDrained("local", True))
    assert world.phase("a") is Phase.HOLDING
    world.done("a")
    assert world.phase("a") is Phase.PARKED


def test_whoever_waits_or_comes_is_told_and_gets_one_once_the_draining_is_off():
    world = World()
    world.kernel("a")
    world.kernel("b")
    world.run("a")
    world.run("b")
    world.tell(NodeDrained("local", True))
    assert isinstance(world.log[-1], Deny) and world.log[-1].reason == "drained"
    world.done("a")
    world.run("b")
    assert isinstance(world.log[-1], Deny)
    world.tell(NodeDrained("local", False))
    world.ran("b")


def test_other_nodes_go_on():
    world = World(nodes=("local", "other"))
    world.kernel("a")
    world.kernel("b", node="other")
    world.tell(NodeDrained("local", True))
    world.ran("b")
    world.run("a")
    assert isinstance(world.log[-1], Deny)


def test_a_kernel_that_can_not_be_parked_keeps_its_gpu_until_it_ends():
    world = World(rung=Rung.EXCLUSIVE)
    world.kernel("a")
    world.ran("a")
    world.tell(NodeDrained("local", True))
    assert world.phase("a") is Phase.HOLDING
