"""When something is due."""

from __future__ import annotations

import math

from gateway.leases.timers import Timers


def test_the_earliest_comes_first_and_once():
    timers = Timers()
    timers.set("b", 2.0)
    timers.set("a", 1.0)
    timers.set("c", 3.0)
    assert timers.next() == 1.0
    assert timers.due(2.0) == ["a", "b"]
    assert timers.due(2.0) == []
    assert timers.next() == 3.0


def test_a_new_moment_replaces_the_old():
    timers = Timers()
    timers.set("a", 1.0)
    timers.set("a", 5.0)
    assert timers.due(4.0) == []
    timers.set("a", 2.0)
    assert timers.due(4.0) == ["a"]
    assert timers.next() is None


def test_infinity_means_nothing_is_due():
    timers = Timers()
    timers.set("a", 1.0)
    timers.set("a", math.inf)
    timers.set("b", math.inf)
    assert timers.next() is None
    assert timers.get("a") == math.inf


def test_many_changes_do_not_pile_up():
    timers = Timers()
    for i in range(10_000):
        timers.set("a", 1e6 + i)
    assert len(timers._heap) < 200
    assert timers.next() == 1e6 + 9999
