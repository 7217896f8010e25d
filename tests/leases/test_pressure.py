"""Who gives way when somebody waits, and whose turn it is then."""

from __future__ import annotations

import pytest

from gateway.leases.events import Executing, GpuSeen, Grant, HoldAsked, Park, ParkRefused, Tick, Unwanted, Wanted
from gateway.leases.policy import Policy
from gateway.protocol.model import Gpu, Phase, Rung

from .world import World


def parks(world: World) -> list[tuple[str, str]]:
    return [(command.kernel_id, command.why) for command in world.log if isinstance(command, Park)]


def hold(world: World, *names: str, apart: float = 1.0) -> None:
    """Each gets a GPU and is idle, the first for longest."""
    for name in names:
        world.kernel(name)
        world.ran(name)
        world.advance(apart)


# one waiter


def test_an_idle_kernel_gives_way_at_once():
    world = World()
    hold(world, "a")
    world.kernel("b")
    world.run("b")
    assert (world.phase("a"), world.phase("b")) == (Phase.PARKED, Phase.HOLDING)
    assert parks(world) == [("a", "reclaimed")]


def test_nobody_gives_way_while_a_gpu_is_free():
    world = World(gpus=2)
    hold(world, "a")
    world.kernel("b")
    world.run("b")
    assert parks(world) == []


def test_the_longest_idle_gives_way_and_no_more_than_needed():
    world = World(gpus=3)
    hold(world, "a", "b", "c")
    world.ran("a")  # so b is idle for longest
    world.kernel("d")
    world.run("d")
    assert parks(world) == [("b", "reclaimed")]


def test_two_waiters_and_one_idle_holder_displace_it_once():
    world = World(auto=False)
    for name in "abc":
        world.kernel(name)
    world.settle()
    world.run("a")
    world.settle()
    world.done("a")
    world.settle()
    world.run("b")
    world.run("c")
    for kernel in world.kernels.values():
        world.hear(kernel)
    assert parks(world) == [("a", "reclaimed")]
    world.settle()
    assert world.phase("b") is Phase.HOLDING
    assert world.queue() == ["c"]


def test_two_waiters_displace_two_idle_holders():
    world = World(gpus=2, auto=False)
    for name in "abcd":
        world.kernel(name)
    for name in "ab":
        world.run(name)
        world.settle()
        world.done(name)
        world.settle()
    for name in "cd":
        world.run(name)
    world.settle()
    assert sorted(parks(world)) == [("a", "reclaimed"), ("b", "reclaimed")]
    assert world.phase("c") is world.phase("d") is Phase.HOLDING


def test_also_when_both_begin_to_wait_at_the_same_moment():
    world = World(gpus=2)
    hold(world, "a", "b")
    world.auto = False
    for name in "cd":
        world.kernel(name)
        world.hear(world.kernels[name])
    world.tell(Wanted("c"), Wanted("d"))
    assert sorted(parks(world)) == [("a", "reclaimed"), ("b", "reclaimed")]


def test_minimum_hold_is_waited_for_and_the_deadline_says_when():
    world = World(min_hold=30.0)
    world.kernel("a")
    world.kernel("b")
    world.ran("a")
    world.advance(10.0)
    world.run("b")
    assert world.book.deadline(world.now) == 30.0
    world.advance(19.9)
    assert world.phase("a") is Phase.HOLDING
    world.advance(0.1)
    assert world.phase("b") is Phase.HOLDING


def test_no_deadline_is_set_for_a_minimum_hold_that_nobody_waits_for():
    world = World(min_hold=30.0)
    hold(world, "a")
    assert world.book.deadline(world.now) is None


def test_the_users_hold_keeps_waiters_out_up_to_the_maximum():
    world = World(max_hold=100.0)
    world.kernel("a")
    world.kernel("b")
    world.ran("a")
    world.tell(HoldAsked("a", 1e6))
    world.run("b")
    world.advance(99.0)
    assert world.phase("b") is Phase.WAITING
    world.advance(1.0)
    assert world.phase("b") is Phase.HOLDING
    assert parks(world) == [("a", "max_hold")]


def test_without_reclaim_waiters_get_what_times_out_only():
    world = World(reclaim=False, idle_timeout=60.0)
    hold(world, "a", apart=0)
    world.kernel("b")
    world.run("b")
    world.advance(59.0)
    assert world.phase("b") is Phase.WAITING
    world.advance(1.0)
    assert world.phase("b") is Phase.HOLDING
    assert parks(world) == [("a", "idle")]


def test_one_that_cannot_be_parked_is_passed_over():
    world = World(gpus=2, auto=False)
    for name in "abc":
        world.kernel(name)
    for name in "ab":
        world.run(name)
        world.settle()
        world.done(name)
        world.settle()
        world.advance(1)
    world.run("c")
    world.hear(world.kernels["c"])
    assert parks(world) == [("a", "reclaimed")]
    world.tell(ParkRefused("a", world.last(Park).order, "does_not_fit"))
    assert parks(world)[1:] == [("b", "reclaimed")]


def test_a_waiter_that_gives_up_leaves_the_freed_gpu_to_the_next():
    world = World(auto=False)
    for name in "abc":
        world.kernel(name)
    world.run("a")
    world.settle()
    world.done("a")
    world.settle()
    world.run("b")
    world.hear(world.kernels["b"])
    world.cancel("b")
    world.run("c")
    world.settle()
    assert (world.phase("b"), world.phase("c")) == (Phase.COLD, Phase.HOLDING)


# turns


def test_a_holder_of_back_to_back_cells_yields_at_the_first_moment_between_them_after_its_minimum():
    world = World(min_hold=30.0)
    world.kernel("a")
    world.kernel("b")
    world.run("a")
    world.run("b")
    for _ in range(2):
        world.advance(12.0)
        world.done("a")
        assert world.phase("a") is Phase.HOLDING, "its minimum hold is not over"
        world.run("a")
    world.advance(12.0)
    world.done("a")
    assert world.phase("b") is Phase.HOLDING


def test_a_displaced_kernel_whose_queue_goes_on_waits_behind_those_it_gave_way_to():
    world = World(auto=False)
    for name in "abc":
        world.kernel(name)
    world.run("a")
    world.settle()
    world.run("b")
    world.run("c")
    world.settle()
    world.done("a")
    world.hear(world.kernels["a"])  # the book orders a to park
    world.kernels["a"].obey()
    world.run("a")  # its next cell is held
    world.settle()
    assert world.phase("b") is Phase.HOLDING
    assert world.queue() == ["c", "a"]


def test_who_gave_way_is_not_served_before_whom_it_gave_way_to_even_if_it_had_less():
    world = World(auto=False, min_hold=1.0)
    for name in "ab":
        world.kernel(name)
    world.run("a")
    world.settle()
    world.advance(500.0)
    world.run("b")
    world.settle()
    world.done("a")
    world.hear(world.kernels["a"])
    world.kernels["a"].obey()
    world.run("a")
    world.settle()
    world.advance(2.0)
    assert world.phase("b") is Phase.HOLDING
    assert world.queue() == ["a"], "a has had 500 s"
    world.done("b")
    world.hear(world.kernels["b"])
    world.kernels["b"].obey()
    world.run("b")
    world.settle()
    assert world.phase("a") is Phase.HOLDING, "b, which has had 2 s, gave way to it"


@pytest.mark.parametrize(("cell_a", "cell_b"), [(10.0, 10.0), (40.0, 3.0)])
def test_two_users_of_one_gpu_take_turns_for_twenty_minutes(cell_a: float, cell_b: float):
    world = World(min_hold=5.0, idle_timeout=120.0)
    cells, ends, turns, had = {"a": cell_a, "b": cell_b}, {}, [], {"a": 0.0, "b": 0.0}
    for name in cells:
        world.kernel(name)
        world.run(name)
    while world.now < 1200:
        holder = next(name for name in cells if world.phase(name) is Phase.HOLDING)
        if not turns or turns[-1] != holder:
            turns.append(holder)
        ends[holder] = world.now + cells[holder]
        world.advance(cells[holder])
        had[holder] += cells[holder]
        kernel = world.kernels[holder]
        kernel.running = 0
        world.says(kernel)  # its client sends the next cell as soon as it has the reply
        world.run(holder)
    assert len(turns) >= 1200 / (max(cell_a, 6) + max(cell_b, 6)) * 1.8, "each turn lasts one minimum hold, up to the cell's end"
    if cell_a == cell_b:
        assert abs(had["a"] - had["b"]) <= 10.0


def test_a_user_with_many_kernels_does_not_crowd_out_another():
    world = World(min_hold=5.0)
    for name in ("a1", "a2", "a3"):
        world.kernel(name, "ana")
        world.run(name)
    world.kernel("b1", "bo")
    world.run("b1")
    served = []
    for _ in range(8):
        world.advance(10.0)
        holder = next(k for k in world.kernels if world.phase(k) is Phase.HOLDING)
        served.append(holder)
        world.kernels[holder].running = 0
        world.says(world.kernels[holder])
        world.run(holder)
    assert served.count("b1") == 4


def test_a_cell_that_slips_in_before_the_order_is_asked_again_when_it_ends():
    world = World(auto=False, min_hold=5.0)
    for name in "ab":
        world.kernel(name)
    world.run("a")
    world.settle()
    world.run("b")
    world.settle()
    world.advance(10.0)
    for _ in range(3):
        world.done("a")
        world.hear(world.kernels["a"])
        world.run("a")  # the supervisor has begun the next cell when the order comes, and refuses
        world.settle()
        assert world.phase("a") is Phase.HOLDING
    world.done("a")
    world.settle()
    assert world.phase("b") is Phase.HOLDING


# what a driver can do


def test_on_the_same_gpu_rung_a_kernel_resumes_at_home_only():
    world = World(gpus=2, rung=Rung.SAME_GPU, idle_timeout=1.0)
    hold(world, "a", apart=2.0)
    world.kernel("b")
    world.run("b")
    assert world.gpus("b") == ("l1",), "a cold kernel goes where fewest others are at home"
    world.kernel("c")
    world.run("c")
    assert world.gpus("c") == ("l0",)
    world.done("b")
    world.advance(2.0)
    world.run("a")
    assert world.phase("a") is Phase.WAITING, "though l1 is free"
    world.done("c")
    assert world.gpus("a") == ("l0",)


def test_a_waiter_for_its_home_presses_on_exactly_who_is_there():
    world = World(gpus=3, rung=Rung.SAME_GPU)
    hold(world, "a", "b", "c")
    world.kernel("d")
    world.run("d")  # displaces a, the longest idle
    world.done("d")
    world.advance(1.0)
    world.run("a")
    assert parks(world) == [("a", "reclaimed"), ("d", "reclaimed")]
    assert world.gpus("a") == ("l0",)


def test_a_waiter_for_a_busy_home_blocks_nobody_else():
    world = World(gpus=2, rung=Rung.SAME_GPU, idle_timeout=1.0)
    hold(world, "a", apart=2.0)
    for name in "bc":
        world.kernel(name)
        world.run(name)
    world.done("b")
    world.advance(2.0)
    world.run("a")  # its home is c's
    world.kernel("d")
    world.run("d")
    assert world.gpus("d") == ("l1",)
    assert world.queue() == ["a"]


def test_where_states_resume_anywhere_a_busy_home_does_not_matter():
    world = World(gpus=2, rung=Rung.ANYWHERE, idle_timeout=1.0)
    hold(world, "a", apart=2.0)
    for name in "bc":
        world.kernel(name)
        world.run(name)
    world.run("a")
    world.done("b" if world.gpus("c") == ("l0",) else "c")
    assert world.gpus("a") == ("l1",)


def test_a_state_never_resumes_on_another_flavor():
    world = World(gpus=1, idle_timeout=1.0)
    hold(world, "a", apart=2.0)
    world.kernel("b")
    world.run("b")
    world.tell(GpuSeen(Gpu("big", flavor="big", rung=Rung.ANYWHERE)))
    world.run("a")
    assert world.phase("a") is Phase.WAITING
    world.done("b")
    assert world.gpus("a") == ("l0",)


def test_a_state_resumes_only_where_the_driver_can():
    world = World(gpus=1, idle_timeout=1.0)
    hold(world, "a", apart=2.0)
    world.kernel("b")
    world.run("b")
    world.tell(GpuSeen(Gpu("old", rung=Rung.SAME_GPU)))
    world.run("a")
    assert world.phase("a") is Phase.WAITING


def test_cold_kernels_take_the_most_capable_gpus_first():
    world = World(gpus=1, rung=Rung.EXCLUSIVE)
    world.tell(GpuSeen(Gpu("zz", rung=Rung.ANYWHERE)))
    world.kernel("a")
    world.run("a")
    assert world.gpus("a") == ("zz",)


# rules change while it runs


def test_a_shorter_idle_timeout_takes_effect_at_once():
    world = World(idle_timeout=3600.0)
    hold(world, "a", apart=100.0)
    world.carry(world.book.set_policy(Policy(idle_timeout=60.0), world.now))
    assert world.phase("a") is Phase.PARKED


def test_a_longer_one_too():
    world = World(idle_timeout=60.0)
    hold(world, "a", apart=30.0)
    world.carry(world.book.set_policy(Policy(idle_timeout=600.0), world.now))
    world.advance(500.0)
    assert world.phase("a") is Phase.HOLDING


def test_switching_reclaim_on_serves_who_waits():
    world = World(reclaim=False)
    hold(world, "a")
    world.kernel("b")
    world.run("b")
    assert world.phase("b") is Phase.WAITING
    world.carry(world.book.set_policy(Policy(), world.now))
    assert world.phase("b") is Phase.HOLDING


# decisions are made once


def test_a_second_look_at_the_same_moment_changes_nothing():
    world = World(auto=False, gpus=2)
    for name in "abcd":
        world.kernel(name)
        world.run(name)
        world.hear(world.kernels[name])
    assert world.tell(Tick()) == []


def test_events_of_one_moment_are_decided_on_together():
    world = World(auto=False)
    for name in "ab":
        world.kernel(name)
        world.hear(world.kernels[name])
    world.tell(Wanted("a"), Unwanted("a"), Wanted("b"))
    assert world.last(Grant).kernel_id == "b"
    assert len(world.log) == 1


def test_levels_told_again_change_nothing():
    world = World(idle_timeout=60.0)
    hold(world, "a", apart=30.0)
    world.tell(Executing("a", False), Unwanted("a"))
    world.advance(30.0)
    assert world.phase("a") is Phase.PARKED
