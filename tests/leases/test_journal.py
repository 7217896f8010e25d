"""What is told of leases: each step once, and nothing of a lease that goes on under another broker."""

from __future__ import annotations

import pytest

from gateway.leases.events import Restarted
from gateway.leases.journal import Entry, Journal
from gateway.protocol.model import Rung

from .world import World


@pytest.fixture
def world() -> World:
    world = World(idle_timeout=60.0, min_hold=0.0)
    world.book.journal = Journal(world.book.devices)
    return world


def told(world: World) -> list[tuple[str, str, float, str]]:
    return [(each.action, each.kernel_id, each.seconds, each.reason) for each in world.book.journal.take()]


def test_a_lease_is_granted_attached_and_released_as_its_kernel_is_idle(world: World):
    world.kernel("k", "ana", spec="torch")
    world.run("k")
    world.done("k")
    granted, attached = world.book.journal.take()
    assert granted == Entry("granted", "k", "ana", "torch", "local", "gpu", world.gpus("k"), 1, 0.0)
    assert (attached.action, attached.lease) == ("attached", 1)
    world.advance(60)
    assert told(world) == [("released", "k", 60.0, "idle")]


def test_an_idle_kernels_lease_is_reclaimed_for_one_that_waits(world: World):
    for name in ("a", "b"):
        world.kernel(name)
    world.run("a")
    world.done("a")
    world.advance(10)
    world.book.journal.take()
    world.run("b")
    assert told(world) == [("reclaimed", "a", 10.0, "reclaimed"), ("granted", "b", 0.0, ""), ("attached", "b", 0.0, "")]


def test_how_long_a_cell_waited_is_told_as_its_lease_is_granted(world: World):
    for name in ("a", "b"):
        world.kernel(name)
    world.run("a")
    world.run("b")
    world.advance(30)
    world.book.journal.take()
    world.done("a")
    assert ("granted", "b", 30.0, "") in told(world)


def test_the_end_and_the_restart_of_a_kernel_free_its_gpu(world: World):
    for name in ("k", "l"):
        world.kernel(name)
    world.run("k")
    world.die("k")
    assert told(world)[-1] == ("released", "k", 0.0, "ended")
    world.run("l")
    world.tell(Restarted("l"))
    assert told(world)[-1] == ("released", "l", 0.0, "restarted")
    assert world.book.journal.lease("k") == world.book.journal.lease("l") == 0


def test_a_wait_in_vain_is_refused_with_its_reason(world: World):
    world.kernel("k", count=3)
    world.run("k")
    (refused,) = world.book.journal.take()
    assert (refused.action, refused.reason, refused.lease, refused.gpus) == ("refused", "impossible_request", 0, ())
    assert "3 GPUs" in refused.message


def test_a_kernel_that_can_not_be_parked_keeps_its_lease(world: World):
    world.kernel("k")
    world.run("k")
    world.done("k")
    world.becomes("k", Rung.ANYWHERE)
    world.kernels["k"].cell()  # begins as the order to park is on its way
    world.book.journal.take()
    lease = world.book.journal.lease("k")
    world.advance(60)
    assert world.book.journal.lease("k") == lease
    assert "released" not in [each[0] for each in told(world)]


def test_a_lease_that_goes_on_under_the_next_broker_is_not_granted_anew(world: World):
    world.kernel("k")
    world.run("k")
    world.reborn()
    world.book.journal = Journal(world.book.devices)
    world.hear_all()
    world.done("k")
    world.advance(60)
    assert told(world) == [("released", "k", 60.0, "idle")]
