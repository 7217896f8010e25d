"""A broker that starts, or hears again of a kernel, believes the supervisors."""

from __future__ import annotations

from gateway.leases.events import Executing, GpuSeen, Grant, KernelSeen, Park, Parked, Resumed, Wanted
from gateway.protocol.model import Gpu, Phase, Rung

from .world import World


def empty(**rules: object) -> World:
    world = World(auto=False, **rules)
    for name in "abc":
        world.kernels[name] = world.kernel(name)
        world.kernels[name].outbox.clear()
    return world


def held(name: str, *gpus: str, **fields: object) -> KernelSeen:
    return KernelSeen(name, name, max(1, len(gpus)), phase=Phase.HOLDING, gpus=gpus, **fields)


def test_leases_are_as_before_after_a_broker_is_killed():
    world = World(gpus=2, idle_timeout=600.0)
    for name in "abc":
        world.kernel(name)
        world.run(name)
    world.done("b")
    world.run("b")
    before = {name: (record.phase, record.gpus, record.home) for name, record in world.book.kernels.items()}
    world.reborn()
    assert {name: (record.phase, record.gpus, record.home) for name, record in world.book.kernels.items()} == before


def test_an_adopted_holder_keeps_its_gpu_and_its_idle_time():
    world = empty(idle_timeout=60.0)
    world.tell(held("a", "l0", phase_for=100.0, idle_for=50.0))
    assert world.gpus("a") == ("l0",)
    assert world.book.deadline(world.now) == 10.0


def test_an_adopted_holder_has_had_its_minimum_hold_before():
    world = empty(min_hold=60.0)
    world.tell(held("a", "l0", phase_for=50.0, idle_for=50.0), KernelSeen("b", "bo", phase=Phase.WAITING, wanted=True))
    assert world.log == []
    world.advance(10.0)
    assert world.last(Park).kernel_id == "a"


def test_an_adopted_hold_goes_on():
    world = empty(idle_timeout=60.0)
    world.tell(held("a", "l0", phase_for=100.0, idle_for=50.0, hold_for=500.0))
    world.advance(499.0)
    assert world.phase("a") is Phase.HOLDING
    world.advance(1.0)
    assert world.phase("a") is Phase.PARKING


def test_holders_told_with_waiters_come_first_whatever_the_order():
    world = empty()
    world.tell(KernelSeen("b", "bo", phase=Phase.WAITING, wanted=True), held("a", "l0", executing=True))
    assert world.log == []
    assert world.queue() == ["b"]


def test_an_adopted_waiter_keeps_its_place_and_its_parked_state():
    world = empty()
    waits = [KernelSeen(n, "ana", phase=Phase.WAITING, wanted=True, phase_for=s, home=("l0",)) for n, s in (("a", 5.0), ("b", 9.0))]
    world.tell(held("c", "l0", executing=True), *waits)
    assert world.queue() == ["b", "a"]
    assert world.book.kernels["a"].parked


def test_an_order_of_an_earlier_broker_is_answered_as_number_zero():
    world = empty(gpus=2)
    leaving = KernelSeen("b", "b", phase=Phase.PARKING, gpus=("l1",))
    world.tell(KernelSeen("a", "a", phase=Phase.RESUMING, gpus=("l0",), wanted=True), leaving)
    world.tell(Resumed("a", 0), Parked("b", 0))
    assert (world.phase("a"), world.phase("b")) == (Phase.HOLDING, Phase.PARKED)


def test_an_adopted_gpu_that_was_not_seen_yet_is_nobody_elses_when_it_is():
    world = empty(gpus=0)
    world.tell(held("a", "x", executing=True))
    world.tell(GpuSeen(Gpu("x", rung=Rung.ANYWHERE)), KernelSeen("b", "b"), Wanted("b"))
    assert world.log == []
    assert world.phase("b") is Phase.WAITING


def test_of_two_who_claim_one_gpu_the_one_that_executes_keeps_it():
    world = empty()
    world.tell(held("a", "l0"), held("b", "l0", executing=True))
    assert [(command.kernel_id, type(command)) for command in world.log] == [("a", Park)]
    world.tell(KernelSeen("c", "c", phase=Phase.WAITING, wanted=True))
    world.tell(Parked("a", 1))
    assert world.gpus("b") == ("l0",)
    assert not world.book.kernels["b"].contested
    assert world.phase("c") is Phase.WAITING, "b has it still"


def test_of_two_who_both_execute_the_later_is_parked_as_soon_as_it_may():
    world = empty(min_hold=1000.0)
    world.tell(held("a", "l0", executing=True), held("b", "l0", executing=True))
    assert world.book.kernels["b"].contested
    assert world.log == []
    world.tell(Executing("b", False))
    assert world.last(Park).kernel_id == "b"


def test_when_the_rightful_holder_ends_the_other_inherits():
    world = empty()
    world.tell(held("a", "l0", executing=True), held("b", "l0", executing=True))
    world.die("a")
    assert not world.book.kernels["b"].contested
    world.tell(Executing("b", False))
    assert world.log == []
    assert not world.book.devices.free("local")


def test_hearing_of_a_kernel_again_replaces_what_was_known():
    world = empty(gpus=1)
    world.tell(KernelSeen("a", "ana"), Wanted("a"))
    assert world.phase("a") is Phase.RESUMING
    world.tell(KernelSeen("a", "ana", phase=Phase.COLD))  # a new link: the grant was lost with the old one
    assert world.phase("a") is Phase.COLD
    assert world.book.devices.free("local")


def test_a_park_on_its_way_outlives_what_an_older_state_says():
    world = empty(idle_timeout=60.0)
    world.tell(held("a", "l0"))
    world.advance(60.0)
    order = world.last(Park).order
    world.tell(held("a", "l0", order=order - 1))
    assert world.phase("a") is Phase.PARKING
    world.tell(Parked("a", order))
    assert world.phase("a") is Phase.PARKED


def test_a_gpu_that_two_hold_is_not_expected_from_the_one_that_leaves():
    world = empty(gpus=2)
    world.tell(held("a", "l0"), held("b", "l0", executing=True))
    world.kernels["d"] = world.kernel("d")
    world.tell(held("d", "l1"))
    world.tell(KernelSeen("c", "c", phase=Phase.WAITING, wanted=True))
    assert [command.kernel_id for command in world.log] == ["a", "d"]


def test_an_order_on_its_way_outlives_what_an_older_state_says():
    world = empty(gpus=1)
    world.tell(KernelSeen("a", "ana"), Wanted("a"))
    order = world.last(Grant).order
    world.tell(KernelSeen("a", "ana", phase=Phase.WAITING, wanted=True, order=order - 1))
    assert world.phase("a") is Phase.RESUMING
    world.tell(Resumed("a", order))
    assert world.gpus("a") == ("l0",)
    world.tell(KernelSeen("a", "ana", phase=Phase.HOLDING, gpus=("l0",), order=order))
    assert world.phase("a") is Phase.HOLDING
