"""What a kernel's state allows counts where its GPU could do more."""

from __future__ import annotations

import pytest

from gateway.leases.events import Deny, GpuLost, Grant, Park, ReleaseAsked
from gateway.leases.snapshot import snapshot
from gateway.protocol.model import Phase, Rung

from .world import World


def holding(world: World, *names: str) -> None:
    """Each gets a GPU, and is idle then."""
    for name in names:
        world.kernel(name)
        world.ran(name)


def parked(world: World, name: str) -> None:
    holding(world, name)
    world.kernels[name].release_asked += 1
    world.says(world.kernels[name])
    assert world.phase(name) is Phase.PARKED


def test_an_exclusive_kernel_keeps_its_gpu_whoever_waits_and_whatever_is_asked():
    world = World(idle_timeout=60.0, max_hold=100.0)
    holding(world, "a")
    world.becomes("a", Rung.EXCLUSIVE)
    world.kernel("b")
    world.run("b")
    world.kernels["a"].release_asked += 1
    world.says(world.kernels["a"])
    world.advance(1e6)
    assert (world.phase("a"), world.phase("b")) == (Phase.HOLDING, Phase.WAITING)
    assert not [command for command in world.log if isinstance(command, Park)]


def test_nobody_is_told_to_expect_the_gpu_of_a_kernel_that_became_exclusive():
    world = World(min_hold=60.0)
    holding(world, "a")
    world.kernel("b")
    world.run("b")
    assert world.places["b"].expected == 60.0
    world.becomes("a", Rung.EXCLUSIVE)
    assert world.places["b"].expected is None


def test_pressure_passes_over_an_exclusive_kernel():
    world = World(gpus=2)
    holding(world, "a", "b")
    world.becomes("a", Rung.EXCLUSIVE)
    world.kernel("c")
    world.run("c")
    assert world.gpus("c") == ("l1",), "though a has been idle for longer"


def test_a_waiter_over_its_quota_gets_nothing_of_its_users_exclusive_kernel():
    world = World(gpus=2, gpus_per_user=1)
    world.kernel("a", "ana")
    world.ran("a")
    world.becomes("a", Rung.EXCLUSIVE)
    world.kernel("b", "ana")
    world.run("b")
    world.advance(1e6)
    assert (world.phase("a"), world.phase("b")) == (Phase.HOLDING, Phase.WAITING)


def test_a_new_process_is_parked_again():
    world = World(idle_timeout=60.0)
    holding(world, "a")
    world.becomes("a", Rung.EXCLUSIVE)
    world.restart("a")
    assert not world.book.devices.owner, "its end has freed the GPU"
    world.ran("a")
    world.advance(60.0)
    assert world.phase("a") is Phase.PARKED


def test_a_rung_that_gets_better_serves_who_waits():
    world = World()
    holding(world, "a")
    world.becomes("a", Rung.EXCLUSIVE)
    world.kernel("b")
    world.run("b")
    assert world.phase("b") is Phase.WAITING
    world.becomes("a", Rung.SAME_GPU)
    assert (world.phase("a"), world.phase("b")) == (Phase.PARKED, Phase.HOLDING)


def test_a_kernel_that_is_bound_to_its_gpu_resumes_there_though_the_driver_could_elsewhere():
    world = World(gpus=2)
    parked(world, "a")
    world.becomes("a", Rung.SAME_GPU)
    world.kernel("b")
    world.kernel("c")
    world.run("b")
    world.run("c")
    world.done("b")
    at_home, elsewhere = ("b", "c") if world.gpus("b") == ("l0",) else ("c", "b")
    world.done(elsewhere)
    world.run(at_home)
    world.run("a")
    assert world.phase("a") is Phase.WAITING
    assert world.phase(elsewhere) is Phase.HOLDING, "what it has is of no use to a"
    world.done(at_home)
    assert world.gpus("a") == ("l0",)


def test_a_waiter_that_becomes_bound_goes_on_waiting_for_its_home_alone():
    world = World(gpus=2)
    parked(world, "a")
    for name in "bc":
        world.kernel(name)
        world.run(name)
    world.run("a")
    world.becomes("a", Rung.SAME_GPU)
    at_home, elsewhere = ("b", "c") if world.gpus("b") == ("l0",) else ("c", "b")
    world.die(elsewhere)
    assert world.phase("a") is Phase.WAITING
    world.die(at_home)
    assert world.gpus("a") == ("l0",)


def test_a_waiter_that_is_bound_no_longer_takes_the_gpu_that_is_free():
    world = World(gpus=2)
    parked(world, "a")
    world.becomes("a", Rung.SAME_GPU)
    for name in "bc":
        world.kernel(name)
        world.run(name)
    world.run("a")
    world.die("b" if world.gpus("b") == ("l1",) else "c")
    assert world.phase("a") is Phase.WAITING
    world.becomes("a", Rung.ANYWHERE)
    assert world.gpus("a") == ("l1",)


@pytest.mark.parametrize("gpu", list(Rung))
@pytest.mark.parametrize("kernel", list(Rung))
def test_of_the_kernels_word_and_its_gpus_the_worse_counts(gpu: Rung, kernel: Rung):
    world = World(rung=gpu)
    holding(world, "a")
    world.becomes("a", kernel)
    worse = max(gpu, kernel, key=list(Rung).index)
    assert snapshot(world.book, world.now)["leases"][0]["rung"] == str(worse)
    assert world.book.kernels["a"].fixed is (worse is Rung.EXCLUSIVE)


def test_an_exclusive_lease_has_no_end_to_show():
    world = World(idle_timeout=60.0)
    holding(world, "a")
    world.becomes("a", Rung.EXCLUSIVE)
    assert snapshot(world.book, world.now)["leases"][0]["ends_by"] is None


def test_a_broker_that_starts_knows_the_rungs_of_those_it_adopts():
    world = World(gpus=2, idle_timeout=60.0)
    holding(world, "a")
    parked(world, "b")
    world.becomes("a", Rung.EXCLUSIVE)
    world.becomes("b", Rung.SAME_GPU)
    world.reborn()
    world.kernel("c")
    world.run("c")
    world.run("b")
    assert world.gpus("c") == ("l1",)
    assert world.phase("b") is Phase.WAITING
    world.advance(1e6)
    assert world.phase("a") is Phase.HOLDING
    world.done("c")
    assert world.gpus("b") == ("l1",)


def test_a_bound_kernel_whose_home_is_lost_is_told_so():
    world = World(gpus=2)
    parked(world, "a")
    world.becomes("a", Rung.SAME_GPU)
    world.tell(GpuLost("l0"))
    world.run("a")
    denied = world.last(Deny)
    assert denied.reason == "impossible_request"
    assert "can't be resumed elsewhere" in denied.message


def test_a_park_that_crossed_the_news_leaves_the_gpu_where_it_is():
    world = World(auto=False)
    world.kernel("a")
    world.run("a")
    world.settle()
    world.done("a")
    world.settle()
    world.kernel("b")
    world.run("b")
    for _ in range(2):
        world.hear(world.kernels["b"])
    assert world.phase("a") is Phase.PARKING
    world.becomes("a", Rung.EXCLUSIVE)
    world.settle()
    world.advance(1e6)
    world.settle()
    assert (world.phase("a"), world.phase("b")) == (Phase.HOLDING, Phase.WAITING)
    assert [type(command) for command in world.log] == [Grant, Park]


def test_a_parked_state_is_never_sent_on_without_a_gpu_though_its_node_has_none_any_more():
    world = World(rung=Rung.SAME_GPU)
    world.kernel("k")
    world.ran("k")
    world.tell(ReleaseAsked("k"))
    assert world.phase("k") is Phase.PARKED
    world.tell(GpuLost("l0"))
    world.reborn()  # the next broker never sees that GPU
    world.run("k")
    denied = world.last(Deny)
    assert denied.kernel_id == "k" and "l0" in denied.message
    assert world.phase("k") is Phase.PARKED
