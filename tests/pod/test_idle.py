"""Replies wait for their idle, and none waits for ever."""

from __future__ import annotations

from gateway.pod.idle import SILENCE, IdleWatch


def test_a_reply_waits_for_its_idle() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    assert not watch.replied("a", "reply of a", now=1.0)
    assert watch.idle("a", running=False) == "reply of a"


def test_a_reply_whose_idle_came_first_goes_at_once() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    assert watch.idle("a", running=True) is None
    assert watch.replied("a", "reply of a", now=1.0)


def test_the_idle_of_something_that_has_no_reply_is_nobodys() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    assert watch.idle("comm", running=False) is None
    assert not watch.overdue(100.0)


def test_an_idle_is_overdue_only_after_silence_since_both_the_reply_and_the_last_word() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    watch.replied("a", "reply of a", now=50.0)
    assert not watch.overdue(50.0 + SILENCE / 2), "a cell that was silent for long has just been answered: its output is on its way"
    watch.heard(60.0)
    assert not watch.overdue(60.0 + SILENCE / 2)
    assert watch.overdue(60.0 + SILENCE) == {"a"}


def test_what_is_overdue_is_given_up_only_once_something_later_has_come() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    watch.replied("a", "reply of a", now=0.0)
    watch.replied("b", "reply of b", now=0.0)
    overdue = watch.overdue(100.0)
    assert watch.idle("b", running=False) == "reply of b", "it came after all, before the later message"
    assert watch.give_up(overdue) == ["reply of a"] and watch.give_up(overdue) == []


def test_a_kernel_that_ends_leaves_no_reply_behind() -> None:
    watch: IdleWatch[str] = IdleWatch(now=0.0)
    watch.replied("a", "reply of a", now=1.0)
    watch.idle("b", running=True)
    assert watch.rest() == ["reply of a"] and watch.rest() == []
    assert not watch.replied("b", "reply of the next b", now=1.0)
