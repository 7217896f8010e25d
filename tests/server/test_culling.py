"""When an idle kernel is warned and ended, in seconds that nobody waits for."""

from __future__ import annotations

import pytest

from gateway.server.culling import Decision, Fate, decide, interval


def test_an_idle_kernel_is_warned_once_and_ended_when_it_was_told():
    assert decide(49, 60, 10, None, False) == Decision(Fate.STAYS)
    assert decide(51, 60, 10, None, False) == Decision(Fate.WARN, 10)
    assert decide(55, 60, 10, 6, False) == Decision(Fate.STAYS)
    assert decide(61, 60, 10, 0, False) == Decision(Fate.CULL)


@pytest.mark.parametrize("idle", [55, 60, 500, 100_000])
def test_however_late_one_looks_the_warning_comes_its_whole_time_before_the_end(idle: float):
    assert decide(idle, 60, 10, None, False) == Decision(Fate.WARN, 10)


def test_a_warning_longer_than_half_the_timeout_is_as_long_as_that():
    assert decide(29, 60, 300, None, False) == Decision(Fate.STAYS)
    assert decide(31, 60, 300, None, False) == Decision(Fate.WARN, 30)


@pytest.mark.parametrize(("idle", "spared"), [(0.5, False), (55, True), (500, True)])
def test_a_kernel_that_was_warned_and_works_or_is_kept_stays(idle: float, spared: bool):
    assert decide(idle, 60, 10, 3, spared) == Decision(Fate.AVERT)
    assert decide(idle, 60, 10, None, spared) == Decision(Fate.STAYS)


def test_without_a_warning_a_kernel_ends_at_its_timeout_and_without_a_timeout_never():
    assert decide(61, 60, 0, None, False) == Decision(Fate.CULL)
    assert decide(59, 60, 0, None, False) == Decision(Fate.STAYS)
    assert decide(1e9, 0, 10, None, False) == Decision(Fate.STAYS)


def test_kernels_are_looked_at_often_enough_for_both():
    assert [interval(*each) for each in [(0, 300), (7200, 0), (7200, 300), (20, 0), (20, 300), (3, 1)]] == [300, 300, 150, 5, 5, 1]
