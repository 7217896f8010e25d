"""GPUs that are counted in different resources: a kernel leases those of its own alone, though others are on its node."""

from __future__ import annotations

from gateway.leases.events import Deny, GpuSeen, Grant, Park
from gateway.leases.placement import best_node
from gateway.leases.snapshot import snapshot
from gateway.protocol.model import Gpu, Phase, Rung

from .world import World

FULL, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"


def mixed(**rules: object) -> World:
    """A node with a whole GPU and two slices of another; the node's labels call all of them by one name."""
    world = World(gpus=0, **rules)
    for uuid, resource in (("full", FULL), ("slice0", SLICE), ("slice1", SLICE)):
        world.tell(GpuSeen(Gpu(uuid, "local", "a100", rung=Rung.ANYWHERE, resource=resource)))
    return world


def test_a_kernel_is_granted_gpus_of_its_own_kind_alone():
    world = mixed()
    for number, resource in enumerate((SLICE, SLICE, SLICE, FULL)):
        world.kernel(f"k{number}", resource=resource)
        world.run(f"k{number}")
    assert [world.gpus(f"k{number}") for number in range(4)] == [("slice0",), ("slice1",), (), ("full",)]
    assert world.phase("k2") is Phase.WAITING


def test_nobody_gives_way_for_who_waits_for_another_kind():
    world = mixed(min_hold=0.0)
    world.kernel("whole", resource=FULL)
    world.ran("whole")
    for name in ("a", "b", "c"):
        world.kernel(name, resource=SLICE)
        world.run(name)
    assert world.phase("c") is Phase.WAITING and world.phase("whole") is Phase.HOLDING
    assert not [command for command in world.log if isinstance(command, Park)]


def test_a_parked_state_comes_back_to_its_own_kind():
    world = mixed(min_hold=0.0)
    for name in ("a", "b", "c"):
        world.kernel(name, resource=SLICE)
        world.ran(name)
    assert world.phase("a") is Phase.PARKED
    world.run("b")
    world.run("a")
    assert world.gpus("a") == ("slice0",) and world.phase("c") is Phase.PARKED


def test_a_kind_that_the_node_lacks_is_refused_and_more_than_it_has_too():
    world = mixed()
    world.kernel("none", resource="amd.com/gpu")
    world.run("none")
    assert world.log[-1] == Grant("none", 1, ())
    world.kernel("many", count=2, resource=FULL)
    world.run("many")
    assert isinstance(world.log[-1], Deny) and "has 1 that can be leased" in world.log[-1].message


def test_places_are_counted_among_those_who_wait_for_the_same():
    world = mixed()
    for number, resource in enumerate((FULL, SLICE, SLICE, FULL, SLICE)):
        world.kernel(f"k{number}", resource=resource)
        world.run(f"k{number}")
    assert [(world.places[name].position, world.places[name].of) for name in ("k3", "k4")] == [(1, 1), (1, 1)]
    assert [(each["kernel_id"], each["position"]) for each in snapshot(world.book, world.now)["queue"]] == [("k3", 1), ("k4", 1)]
    assert world.places["k4"].holders == ("k1 (k1.ipynb)", "k2 (k2.ipynb)")


def test_where_a_kernel_starts_is_chosen_by_the_gpus_of_its_kind():
    world = World(gpus=0)
    for node, count in (("a", 1), ("b", 2)):
        world.tell(*(GpuSeen(Gpu(f"{node}{number}", node, resource=FULL)) for number in range(count)))
        world.tell(*(GpuSeen(Gpu(f"{node}-slice{number}", node, resource=SLICE)) for number in range(7 * (3 - count))))
    assert best_node(world.book, 2, ["a", "b"], resource=FULL) == "b"
    assert best_node(world.book, 8, ["a", "b"], resource=SLICE) == "a"
    assert best_node(world.book, 15, ["a", "b"], resource=SLICE) is None


def test_a_restart_changes_nothing_of_what_a_kernel_may_have():
    world = mixed()
    world.kernel("whole", resource=FULL)
    world.ran("whole")
    world.restart("whole")
    world.run("whole")
    assert world.gpus("whole") == ("full",)
