"""Where a kernel starts, as it stays there."""

import pytest

from gateway.leases.events import NodeDrained
from gateway.leases.placement import best_node

from .world import World

NODES = ("a", "b", "c")


@pytest.fixture
def world():
    return World(gpus=8, nodes=NODES)


def start(world: World, name: str, count: int) -> str:
    node = best_node(world.book, count, NODES)
    world.kernel(name, count=count, node=node)
    return node


def test_large_leases_are_spread_over_nodes(world):
    assert {start(world, f"k{number}", 8) for number in range(3)} == set(NODES)


def test_small_leases_share_a_node_while_they_hardly_disturb_each_other(world):
    assert {start(world, f"k{number}", 1) for number in range(8)} == {"a"}


def test_small_leases_keep_off_the_node_of_a_large_one(world):
    large = start(world, "large", 8)
    assert large not in {start(world, f"k{number}", 1) for number in range(16)}


def test_a_large_lease_keeps_off_the_node_of_small_ones(world):
    small = {start(world, f"k{number}", 1) for number in range(4)}
    assert start(world, "large", 8) not in small


def test_a_busy_node_is_avoided(world):
    for node in NODES:
        world.kernel(node, count=8, node=node)
    for node in "ac":
        world.run(node)
    assert best_node(world.book, 8, NODES) == "b"


def test_only_nodes_with_gpus_enough_are_chosen(world):
    assert best_node(world.book, 9, NODES) is None
    assert best_node(world.book, 1, ["elsewhere"]) is None


def test_nothing_starts_on_a_node_that_is_being_drained(world):
    world.tell(NodeDrained("a", True), NodeDrained("b", True))
    assert best_node(world.book, 1, NODES) == "c"


def test_kernels_that_start_at_once_are_spread_too(world):
    assert best_node(world.book, 8, NODES, [("a", 8), ("c", 8)]) == "b"
