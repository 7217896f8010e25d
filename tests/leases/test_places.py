"""What waiting notebooks and the REST interface are shown."""

from __future__ import annotations

from gateway.leases.events import HoldAsked, Place, Silence, Tick
from gateway.leases.snapshot import snapshot
from gateway.protocol.model import Phase, Rung

from .world import World


def waiting(world: World, *names: str) -> None:
    for name in names:
        world.kernel(name)
        world.run(name)


def test_a_waiter_is_told_its_place_and_who_holds():
    world = World()
    waiting(world, "a", "b", "c")
    place = world.places["b"]
    assert (place.position, place.of, place.holders, place.expected) == (1, 2, ("a (a.ipynb)",), None)
    assert world.places["c"].position == 2


def test_everyone_moves_up_when_one_leaves():
    world = World()
    waiting(world, "a", "b", "c")
    world.cancel("b")
    assert (world.places["c"].position, world.places["c"].of) == (1, 1)


def test_nothing_is_told_while_nothing_changes():
    world = World(min_hold=100.0)
    waiting(world, "a", "b")
    world.done("a")
    world.places.clear()
    for _ in range(5):
        world.now += 10.0
        assert world.tell(Tick()) == []


def test_the_expected_wait_is_known_where_an_idle_holders_hold_ends():
    world = World(min_hold=30.0)
    waiting(world, "a", "b")
    world.done("a")
    assert world.places["b"].expected == 30.0


def test_a_users_hold_is_expected_to_last():
    world = World(max_hold=500.0)
    waiting(world, "a")
    world.done("a")
    world.tell(HoldAsked("a", 200.0))
    waiting(world, "b")
    assert world.places["b"].expected == 200.0
    world.tell(HoldAsked("a", 2000.0))
    assert world.places["b"].expected == 500.0


def test_no_wait_is_expected_to_end_with_a_holder_that_does_not_answer():
    world = World(min_hold=30.0)
    waiting(world, "a", "b")
    world.done("a")
    world.tell(Silence("a", "stopped?"))
    assert (world.places["b"].holders, world.places["b"].expected) == (("a (a.ipynb), not answering (stopped?)",), None)
    world.advance(100.0)
    assert world.phase("a") is Phase.HOLDING, "nothing is asked of it"
    world.tell(Silence("a", ""))
    assert world.phase("b") is Phase.HOLDING


def test_a_holder_that_falls_silent_while_it_gives_way_holds_up_no_other_that_can():
    world = World(gpus=2, auto=False)
    for name in "abc":
        world.kernel(name)
    world.settle()
    for name in "ab":
        world.run(name)
        world.settle()
        world.done(name)
        world.settle()
    world.run("c")
    world.hear(world.kernels["c"])
    leaving, other = ("a", "b") if world.phase("a") is Phase.PARKING else ("b", "a")
    world.tell(Silence(leaving, "stopped?"))
    assert world.phase(other) is Phase.PARKING


def test_without_reclaim_the_idle_timeout_tells_the_expected_wait():
    world = World(reclaim=False, idle_timeout=50.0)
    waiting(world, "a")
    world.done("a")
    waiting(world, "b", "c")
    assert world.places["b"].expected == 50.0
    assert world.places["c"].expected is None


def test_what_parking_has_cost_is_part_of_the_expected_wait():
    world = World(auto=False)
    for name in "abc":
        world.kernel(name)
    world.run("a")
    world.settle()
    world.done("a")
    world.run("b")
    for kernel in world.kernels.values():
        world.hear(kernel)
    world.hear(world.kernels["a"])
    world.hear(world.kernels["b"])
    world.kernels["a"].obey()
    world.now += 4.0
    world.settle()
    assert world.phase("b") is Phase.HOLDING
    world.done("b")
    world.settle()
    world.run("c")
    world.hear(world.kernels["c"])
    assert world.places["c"].expected == 4.0


def test_a_waiter_for_its_home_is_told_who_is_there_and_no_others():
    world = World(gpus=2, rung=Rung.SAME_GPU, idle_timeout=1.0)
    waiting(world, "a")
    world.done("a")
    world.advance(1.0)
    waiting(world, "b", "c")
    world.run("a")
    at_home = next(name for name in "bc" if world.gpus(name) == ("l0",))
    assert world.places["a"].holders == (f"{at_home} ({at_home}.ipynb)",)


def test_a_replay_is_told_no_places():
    world = World(places=False)
    waiting(world, "a", "b", "c")
    assert world.places == {}
    assert not any(isinstance(command, Place) for command in world.log)


def test_the_snapshot_has_the_shape_of_the_rest_interface():
    world = World(idle_timeout=60.0, max_hold=900.0)
    waiting(world, "a", "b")
    world.advance(10.0)
    shown = snapshot(world.book, world.now)
    assert shown["gpus"][0] == {
        "uuid": "l0", "node": "local", "flavor": "gpu", "memory_bytes": 0, "simulated": False, "rung": "anywhere",
        "rung_reason": "", "leasable": True,
    }  # fmt: skip
    lease = shown["leases"][0]
    assert {"kernel_id", "user", "phase", "gpus", "executing", "since", "idle_since", "ends_by", "parked_bytes"} <= set(lease)
    assert (lease["phase"], lease["gpus"], lease["executing"], lease["since"]) == ("HOLDING", ["l0"], True, 10.0)
    assert (lease["idle_since"], lease["ends_by"]) == (None, 890.0)
    assert shown["leases"][1]["phase"] == "WAITING"
    assert shown["queue"] == [
        {"kernel_id": "b", "user": "b", "notebook": "b.ipynb", "node": "local", "count": 1, "position": 1, "since": 10.0, "quota": ""}
    ]


def test_the_snapshot_tells_when_an_idle_lease_ends():
    world = World(idle_timeout=60.0)
    waiting(world, "a")
    world.done("a")
    world.advance(20.0)
    lease = snapshot(world.book, world.now)["leases"][0]
    assert (lease["idle_since"], lease["ends_by"]) == (20.0, 40.0)
