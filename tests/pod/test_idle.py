"""Replies wait for their idle, and none waits for ever."""

from __future__ import annotations

from gateway.pod.idle import SILENCE, IdleWatch


def test_a_reply_waits_for_its_idle() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    assert not watch.replied("a", "reply of a")
    assert watch.idle("a", running=False) == "reply of a"


def test_a_reply_whose_idle_came_first_goes_at_once() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    assert watch.idle("a", running=True) is None
    assert watch.replied("a", "reply of a")


def test_the_idle_of_something_that_has_no_reply_is_nobodys() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    assert watch.idle("comm", running=False) is None
    assert watch.lost(100.0) == []


def test_an_idle_that_does_not_come_holds_its_reply_only_until_the_kernel_is_silent() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    watch.replied("a", "reply of a")
    watch.heard(10.0)
    assert watch.lost(10.0 + SILENCE / 2) == []
    assert watch.lost(10.0 + SILENCE) == ["reply of a"]
    assert watch.lost(100.0) == []


def test_a_kernel_that_ends_leaves_no_reply_behind() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    watch.replied("a", "reply of a")
    watch.idle("b", running=True)
    assert watch.rest() == ["reply of a"] and watch.rest() == []
    assert not watch.replied("b", "reply of the next b")
