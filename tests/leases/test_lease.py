"""One kernel's lease from cold to parked and back, and the GPUs under it."""

from __future__ import annotations

from gateway.leases.events import (
    Deny,
    GpuLost,
    GpuSeen,
    Grant,
    HoldAsked,
    Park,
)
from gateway.protocol.model import Gpu, Phase, Rung

from .world import World


def test_a_free_gpu_is_granted_at_once():
    world = World()
    world.kernel("k")
    assert world.phase("k") is Phase.COLD
    world.run("k")
    assert world.phase("k") is Phase.HOLDING
    assert world.gpus("k") == ("l0",)


def test_an_idle_gpu_is_released_after_the_timeout_and_not_before():
    world = World(idle_timeout=60.0)
    world.kernel("k")
    world.ran("k")
    world.advance(59.9)
    assert world.phase("k") is Phase.HOLDING
    world.advance(0.1)
    assert world.phase("k") is Phase.PARKED
    assert world.last(Park).why == "idle"
    assert world.book.kernels["k"].home == ("l0",)
    assert world.book.kernels["k"].parked_bytes == 1000


def test_with_no_idle_timeout_an_idle_gpu_is_kept():
    world = World(idle_timeout=None)
    world.kernel("k")
    world.ran("k")
    world.advance(1e9)
    assert world.phase("k") is Phase.HOLDING
    assert world.book.deadline(world.now) is None


def test_with_idle_timeout_zero_each_cell_gives_its_gpu_back():
    world = World(idle_timeout=0.0)
    world.kernel("k")
    world.ran("k")
    assert world.phase("k") is Phase.PARKED


def test_a_busy_kernel_is_never_parked():
    world = World(idle_timeout=1.0, max_hold=2.0)
    world.kernel("a")
    world.kernel("b")
    world.run("a")
    world.run("b")
    world.advance(1e6)
    assert world.phase("a") is Phase.HOLDING
    assert world.phase("b") is Phase.WAITING
    assert not [command for command in world.log if isinstance(command, Park)]


def test_each_cell_starts_the_idle_time_anew():
    world = World(idle_timeout=60.0)
    world.kernel("k")
    for _ in range(5):
        world.ran("k")
        world.advance(59.0)
    assert world.phase("k") is Phase.HOLDING


def test_a_parked_kernel_that_waits_keeps_its_parked_state():
    world = World(idle_timeout=0.0)
    world.kernel("a")
    world.kernel("b")
    world.ran("a")
    world.run("b")
    world.run("a")
    record = world.book.kernels["a"]
    assert (record.phase, record.home, record.parked_bytes) == (Phase.WAITING, ("l0",), 1000)
    world.cancel("a")
    assert (record.phase, record.home, record.parked_bytes) == (Phase.PARKED, ("l0",), 1000)


def test_a_resumed_kernel_goes_home_where_it_can():
    world = World(gpus=3, idle_timeout=0.0)
    for name in "abc":
        world.kernel(name)
        world.run(name)
    assert [world.gpus(name) for name in "abc"] == [("l0",), ("l1",), ("l2",)]
    for name in "abc":
        world.done(name)
    for name in "cab":
        world.run(name)
    assert [world.gpus(name) for name in "abc"] == [("l0",), ("l1",), ("l2",)]


def test_a_machine_without_gpus_has_nothing_to_lease():
    world = World(gpus=0, idle_timeout=0.0)
    world.kernel("k", count=4)
    world.ran("k")
    assert world.last(Grant).gpus == ()
    world.advance(1e6)
    assert world.phase("k") is Phase.HOLDING
    assert [type(command) for command in world.log] == [Grant]


def test_a_kernel_of_no_gpus_never_waits():
    world = World()
    world.kernel("k", count=0)
    world.run("k")
    assert world.last(Grant).gpus == ()


def test_more_gpus_than_there_are_is_denied_at_once():
    world = World(gpus=2)
    world.kernel("k", count=3)
    world.run("k")
    deny = world.last(Deny)
    assert deny.reason == "impossible_request"
    assert "3 GPUs" in deny.message
    assert world.phase("k") is Phase.COLD
    assert world.kernels["k"].held == 0


def test_a_wait_may_end_with_an_error():
    world = World(queue_timeout=30.0)
    world.kernel("a", "ana")
    world.kernel("b", "bo")
    world.run("a")
    world.run("b")
    world.advance(29.0)
    assert world.phase("b") is Phase.WAITING
    world.advance(1.0)
    assert world.phase("b") is Phase.COLD
    assert world.last(Deny).reason == "queue_timeout"
    assert "ana (a.ipynb)" in world.last(Deny).message


def test_queue_timeout_zero_takes_a_free_gpu_or_none_and_presses_on_nobody():
    world = World(queue_timeout=0.0)
    world.kernel("a")
    world.kernel("b")
    world.ran("a")
    world.run("b")
    assert isinstance(world.last(Deny), Deny)
    assert world.phase("a") is Phase.HOLDING


def test_a_release_that_is_asked_parks_an_idle_kernel_at_once():
    world = World(idle_timeout=None, min_hold=100.0)
    kernel = world.kernel("k")
    world.ran("k")
    kernel.hold = 1000.0
    world.says(kernel)
    kernel.release_asked += 1
    world.says(kernel)
    assert world.phase("k") is Phase.PARKED
    assert world.last(Park).why == "asked"


def test_a_release_is_for_once():
    world = World(idle_timeout=None)
    kernel = world.kernel("k")
    world.ran("k")
    kernel.release_asked += 1
    world.says(kernel)
    world.ran("k")
    assert world.phase("k") is Phase.HOLDING


def test_a_hold_asked_after_a_release_takes_it_back():
    world = World(idle_timeout=None)
    kernel = world.kernel("k")
    world.run("k")
    kernel.release_asked += 1
    world.says(kernel)
    kernel.hold = 50.0
    world.says(kernel)
    world.done("k")
    assert world.phase("k") is Phase.HOLDING


def test_a_release_asked_within_a_cell_happens_when_it_ends():
    world = World(idle_timeout=None)
    kernel = world.kernel("k")
    world.run("k")
    kernel.release_asked += 1
    world.says(kernel)
    assert world.phase("k") is Phase.HOLDING
    world.done("k")
    assert world.phase("k") is Phase.PARKED


def test_a_hold_keeps_an_idle_gpu_until_it_ends():
    world = World(idle_timeout=60.0)
    world.kernel("k")
    world.ran("k")
    world.tell(HoldAsked("k", 1000.0))
    world.advance(999.0)
    assert world.phase("k") is Phase.HOLDING
    world.advance(1.0)
    assert world.phase("k") is Phase.PARKED


def test_a_hold_can_be_ended():
    world = World(idle_timeout=60.0)
    world.kernel("k")
    world.ran("k")
    world.tell(HoldAsked("k", 1000.0))
    world.advance(70.0)
    world.tell(HoldAsked("k", 0))
    assert world.phase("k") is Phase.PARKED


def test_an_exclusive_gpu_is_kept_for_life():
    world = World(rung=Rung.EXCLUSIVE, idle_timeout=0.0)
    kernel = world.kernel("a")
    world.kernel("b")
    world.ran("a")
    world.run("b")
    kernel.release_asked += 1
    world.says(kernel)
    world.advance(1e6)
    assert (world.phase("a"), world.phase("b")) == (Phase.HOLDING, Phase.WAITING)
    world.die("a")
    assert world.phase("b") is Phase.HOLDING


# GPUs come and go


def test_a_lost_gpu_stays_with_its_holder_and_goes_to_nobody_after():
    world = World(gpus=2, idle_timeout=60.0)
    world.kernel("a")
    world.kernel("b")
    world.ran("a")
    world.tell(GpuLost("l0"))
    world.advance(1000.0)
    assert world.gpus("a") == ("l0",)
    world.die("a")
    world.run("b")
    assert world.gpus("b") == ("l1",)


def test_a_request_that_a_loss_makes_impossible_is_denied():
    world = World(gpus=2)
    world.kernel("a")
    world.kernel("b", count=2)
    world.run("a")
    world.run("b")
    assert world.phase("b") is Phase.WAITING
    world.tell(GpuLost("l1"))
    assert world.last(Deny).reason == "impossible_request"


def test_a_gpu_that_comes_back_serves_who_waits():
    world = World(gpus=2)
    world.tell(GpuLost("l1"))
    world.kernel("a")
    world.kernel("b")
    world.run("a")
    world.run("b")
    world.tell(GpuSeen(Gpu("l1", rung=Rung.ANYWHERE)))
    assert world.gpus("b") == ("l1",)


def test_a_machine_that_has_lost_its_gpus_denies_and_does_not_pretend_to_have_none():
    world = World(gpus=1)
    world.tell(GpuLost("l0"))
    world.kernel("k")
    world.run("k")
    assert isinstance(world.log[-1], Deny)
