"""What has happened in the book, counted."""

from __future__ import annotations

from gateway.leases.events import ParkRefused

from .world import World


def test_waits_attaches_parks_refusals_and_denials_are_counted():
    world = World(idle_timeout=10.0, queue_timeout=50.0)
    for name in ("a", "b", "c"):
        world.kernel(name)
    world.run("a")
    world.run("b")
    world.advance(20)
    world.done("a")  # b gets it after 20 s
    world.run("c")
    world.advance(50)  # c waits in vain
    world.done("b")
    world.advance(10)
    tally = world.book.tally
    assert tally.waits["gpu"].total == 20.0
    assert dict(tally.waits["gpu"].buckets())["+Inf"] == 2
    assert dict(tally.attaches["gpu"].buckets())["0.1"] == 2
    assert dict(tally.parks) == {"reclaimed": 1, "idle": 1}
    assert dict(tally.denied) == {"queue_timeout": 1}


def test_a_refused_park_is_counted_with_its_reason():
    world = World(idle_timeout=10.0, auto=False)
    world.kernel("k")
    world.run("k")
    world.settle()
    world.done("k")
    world.settle()
    world.advance(10)
    world.tell(ParkRefused("k", world.book.kernels["k"].order, "does_not_fit"))
    assert dict(world.book.tally.refused) == {"does_not_fit": 1}
