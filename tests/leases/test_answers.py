"""What supervisors answer, however late, and what happens to kernels meanwhile."""

from __future__ import annotations

import pytest

from gateway.leases.events import (
    Deny,
    Executing,
    GpuLost,
    GpuSeen,
    Grant,
    KernelGone,
    KernelSeen,
    Park,
    Parked,
    ParkRefused,
    ReleaseAsked,
    Resumed,
    ResumeFailed,
    Unwanted,
    Wanted,
)
from gateway.protocol.model import GPU_IN_USE, Gpu, Phase, Rung

from .world import World


@pytest.fixture
def slow() -> World:
    """Nothing is carried out but by the test's word."""
    world = World(auto=False, idle_timeout=60.0)
    world.tell(KernelSeen("k", "ana"))
    world.kernels["k"] = world.kernel("k", "ana")
    return world


def granted(world: World, kernel_id: str = "k") -> int:
    world.tell(Wanted(kernel_id))
    return world.last(Grant).order


def holding(world: World, kernel_id: str = "k") -> None:
    order = granted(world, kernel_id)
    world.tell(Resumed(kernel_id, order), Executing(kernel_id, False), Unwanted(kernel_id))


def test_the_kernel_holds_only_once_it_has_resumed(slow: World):
    order = granted(slow)
    assert slow.phase("k") is Phase.RESUMING
    slow.tell(Resumed("k", order))
    assert slow.phase("k") is Phase.HOLDING


def test_late_and_repeated_answers_change_nothing(slow: World):
    order = granted(slow)
    slow.tell(Resumed("k", order - 1))
    slow.tell(Resumed("k", order + 1))
    assert slow.phase("k") is Phase.RESUMING
    slow.tell(Resumed("k", order), Unwanted("k"))
    slow.tell(Resumed("k", order), ResumeFailed("k", order), Parked("k", order), ParkRefused("k", order, "executing"))
    assert slow.phase("k") is Phase.HOLDING
    slow.advance(60.0)
    slow.tell(Resumed("k", order), Parked("k", order))
    assert slow.phase("k") is Phase.PARKING


def test_events_of_unknown_kernels_change_nothing(slow: World):
    for event in (Wanted("x"), Unwanted("x"), Executing("x", True), Resumed("x", 1), Parked("x", 1), KernelGone("x"), ReleaseAsked("x")):
        assert slow.tell(event) == []


def test_cells_interrupted_during_the_resume_leave_an_idle_holder(slow: World):
    order = granted(slow)
    slow.tell(Unwanted("k"))
    assert slow.phase("k") is Phase.RESUMING
    slow.tell(Resumed("k", order))
    slow.advance(60.0)
    assert slow.last(Park).why == "idle"


def test_a_kernel_that_has_just_resumed_is_not_parked_before_its_cells_have_run():
    world = World(auto=False, idle_timeout=0.0)
    world.kernels["k"] = world.kernel("k")
    world.tell(KernelSeen("k", "ana"))
    order = granted(world)
    world.tell(Resumed("k", order))
    assert world.phase("k") is Phase.HOLDING
    world.tell(Executing("k", True), Unwanted("k"))
    assert world.phase("k") is Phase.HOLDING
    world.tell(Executing("k", False))
    assert world.phase("k") is Phase.PARKING


def test_a_failed_resume_frees_the_gpus_and_keeps_the_parked_state(slow: World):
    holding(slow)
    slow.advance(60.0)
    slow.tell(Parked("k", slow.last(Park).order, 77))
    slow.tell(ResumeFailed("k", granted(slow), "no_room"), Unwanted("k"))
    record = slow.book.kernels["k"]
    assert (record.phase, record.gpus, record.home, record.parked_bytes) == (Phase.PARKED, (), ("l0",), 77)
    assert slow.book.devices.free("local")


def test_a_fatally_failed_resume_leaves_a_cold_kernel(slow: World):
    holding(slow)
    slow.advance(60.0)
    slow.tell(Parked("k", slow.last(Park).order, 77))
    slow.tell(ResumeFailed("k", granted(slow), "lost", fatal=True))
    record = slow.book.kernels["k"]
    assert (record.phase, record.gpus, record.home, record.parked_bytes) == (Phase.COLD, (), (), 0)


def test_cells_that_came_after_a_failed_resume_wait_anew(slow: World):
    order = granted(slow)
    slow.tell(ResumeFailed("k", order, "unwanted"), Wanted("k"))
    assert slow.last(Grant).order == order + 1


def test_a_park_refused_because_a_cell_began_is_tried_again_when_it_ends(slow: World):
    holding(slow)
    slow.advance(60.0)
    slow.tell(ParkRefused("k", slow.last(Park).order, "executing"), Executing("k", True))
    assert slow.phase("k") is Phase.HOLDING
    slow.advance(500.0)
    assert slow.phase("k") is Phase.HOLDING
    slow.tell(Executing("k", False))
    slow.advance(60.0)
    assert slow.phase("k") is Phase.PARKING


def test_a_refused_park_counts_as_use():
    world = World(auto=False, idle_timeout=60.0)
    world.kernel("k")
    world.settle()
    holding(world)
    world.advance(60.0)
    mark = len(world.log)
    world.tell(ParkRefused("k", world.last(Park).order, "executing"), Executing("k", False))
    world.advance(59.0)
    assert world.since(mark) == []
    world.advance(1.0)
    assert world.phase("k") is Phase.PARKING


def test_a_state_that_does_not_fit_is_left_on_the_gpu_for_a_while_and_the_book_says_why():
    world = World(auto=False, idle_timeout=60.0, park_backoff=300.0)
    world.kernels["k"] = world.kernel("k")
    world.tell(KernelSeen("k", "ana"))
    holding(world)
    world.advance(60.0)
    world.tell(ParkRefused("k", world.last(Park).order, "does_not_fit"))
    assert world.book.kernels["k"].refused == "does_not_fit"
    mark = len(world.log)
    world.advance(299.0)
    assert world.since(mark) == []
    world.advance(1.0)
    assert [type(command) for command in world.since(mark)] == [Park]


def test_cells_that_come_while_the_state_is_leaving_wait_from_then_on(slow: World):
    holding(slow)
    slow.advance(60.0)
    slow.tell(Wanted("k"))
    assert slow.phase("k") is Phase.PARKING
    since = slow.now
    slow.advance(5.0)
    slow.tell(Parked("k", slow.last(Park).order))
    assert slow.phase("k") is Phase.RESUMING
    assert slow.book.kernels["k"].wanted_since == since


# what else happens to it


@pytest.mark.parametrize("when", ["WAITING", "RESUMING", "HOLDING", "PARKING", "PARKED"])
def test_a_kernel_that_ends_frees_everything_in_any_phase(when: str):
    world = World(auto=False, idle_timeout=60.0)
    for name in "kb":
        world.kernels[name] = world.kernel(name)
        world.tell(KernelSeen(name, name))
    if when == "WAITING":
        holding(world, "b")
        world.tell(Executing("b", True), Wanted("k"))
    else:
        order = granted(world)
        if when != "RESUMING":
            world.tell(Resumed("k", order), Unwanted("k"))
        if when in ("PARKING", "PARKED"):
            world.advance(60.0)
        if when == "PARKED":
            world.tell(Parked("k", world.last(Park).order))
    assert world.phase("k") is Phase(when)
    world.tell(KernelGone("k"), KernelGone("b"))
    assert not world.book.kernels
    assert not world.book.queue()
    assert len(world.book.devices.free("local")) == 1
    assert world.book.deadline(world.now) is None


def test_a_restart_gives_the_lease_back_and_forgets_the_state():
    world = World(idle_timeout=None)
    world.kernel("k")
    world.run("k")
    world.restart("k")
    assert world.phase("k") is Phase.COLD
    assert world.book.devices.free("local")
    world.ran("k")
    assert world.phase("k") is Phase.HOLDING


def test_a_grant_that_is_on_its_way_during_a_restart_keeps_its_gpus():
    world = World(auto=False)
    kernel = world.kernel("k")
    world.hear(kernel)
    world.run("k")
    world.hear(kernel)
    world.restart("k")  # before the grant has arrived
    world.hear(kernel)
    assert world.phase("k") is Phase.RESUMING
    assert not world.book.devices.free("local")
    kernel.cell()
    kernel.obey()
    kernel.complete()
    world.says(kernel)
    world.hear(kernel)
    assert world.phase("k") is Phase.HOLDING


def test_cells_held_after_a_deny_are_not_those_that_it_ended():
    world = World(auto=False, gpus=1)
    kernel = world.kernel("k", count=2)
    world.hear(kernel)
    world.run("k")
    world.hear(kernel)
    kernel.obey()  # the Deny ends the held cell
    kernel.cell()  # and another comes before the supervisor's state is sent
    world.says(kernel)
    mark = len(world.log)
    world.hear(kernel)
    assert [type(command) for command in world.since(mark)] == [Deny]


def test_a_wait_that_is_interrupted_before_its_deny_arrives_may_begin_again():
    world = World(auto=False, queue_timeout=5.0)
    for name in "ab":
        world.kernel(name)
    world.run("a")
    world.settle()
    world.run("b")
    world.settle()
    world.advance(5.0)
    assert world.phase("b") is Phase.COLD
    world.cancel("b")
    world.hear(world.kernels["b"])
    world.kernels["b"].inbox.clear()
    world.run("b")
    world.hear(world.kernels["b"])
    assert world.queue() == ["b"]


def test_a_deny_on_its_way_during_a_restart_still_counts():
    world = World(auto=False)
    kernel = world.kernel("k", count=2)
    world.run("k")
    world.hear(kernel, newest=True)
    order = world.last(Deny).order
    world.tell(KernelSeen("k", "ana", count=2, wanted=True, order=order - 1))
    assert len(world.log) == 1
    world.tell(KernelSeen("k", "ana", count=2, wanted=True, order=order))
    assert len(world.log) == 2


def test_a_gpu_on_which_an_unseen_kernel_is_is_not_granted_again_and_the_wait_goes_on_in_its_place():
    world = World(gpus=2, auto=False)
    for kernel_id in ("holder", "k", "other"):
        world.tell(KernelSeen(kernel_id, kernel_id))
        world.kernel(kernel_id)
        granted(world, kernel_id)
    granted_to_k = [command for command in world.log if isinstance(command, Grant) and command.kernel_id == "k"][-1]
    [in_use] = granted_to_k.gpus
    world.tell(GpuLost(in_use), ResumeFailed("k", granted_to_k.order, GPU_IN_USE), Wanted("k"))
    assert world.queue() == ["k", "other"]
    assert world.last(Grant) is granted_to_k
    world.tell(GpuSeen(Gpu(in_use, "local", rung=Rung.ANYWHERE)))
    assert world.last(Grant).kernel_id == "k"
    assert world.last(Grant).order > granted_to_k.order
    assert world.queue() == ["other"]
