"""How many workers an elastic burst should have, in every situation."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.burst.size import Situation, at_start, wanted

HERE = Situation(least=1, most=8, workers=2, gpus=1, idle=3)


def test_gpus_that_stay_idle_are_taken() -> None:
    assert wanted(HERE, 59.0, 60.0) == (2, "")
    assert wanted(HERE, 60.0, 60.0) == (5, "3 GPUs were idle.")


def test_a_change_has_to_have_lasted_and_so_must_the_idleness() -> None:
    assert wanted(replace(HERE, changed=10.0), 60.0, 60.0)[0] == 2
    assert wanted(replace(HERE, idle_since=10.0), 60.0, 60.0)[0] == 2


def test_what_others_wait_for_is_given_back_at_once() -> None:
    assert wanted(replace(HERE, workers=4, idle=0, missed=2, whose="bob"), 0.0, 60.0) == (2, "2 GPUs back for bob, who waits.")


def test_workers_of_two_gpus_give_back_whole_workers() -> None:
    assert wanted(replace(HERE, workers=4, gpus=2, idle=0, missed=3, whose="bob"), 0.0, 60.0)[0] == 2
    assert wanted(replace(HERE, gpus=2, idle=5), 60.0, 60.0)[0] == 4


def test_the_least_is_never_given_back() -> None:
    assert wanted(replace(HERE, idle=0, missed=100, whose="bob"), 0.0, 60.0)[0] == 1
    assert wanted(replace(HERE, workers=1, idle=0, missed=100, whose="bob"), 0.0, 60.0)[0] == 1


def test_a_number_that_the_user_wants_holds_until_somebody_waits() -> None:
    pinned = replace(HERE, workers=4, pinned=3)
    assert wanted(pinned, 0.0, 60.0) == (3, "As asked.")
    assert wanted(replace(pinned, workers=3, idle=5), 1e6, 60.0)[0] == 3
    assert wanted(replace(pinned, workers=3, idle=0, missed=1, whose="bob"), 0.0, 60.0)[0] == 2


def test_without_gpus_only_the_user_changes_it() -> None:
    assert wanted(replace(HERE, gpus=0), 1e6, 60.0) == (2, "")
    assert wanted(replace(HERE, gpus=0, pinned=8), 0.0, 60.0)[0] == 8


def test_an_admin_may_leave_growing_to_the_user() -> None:
    assert wanted(HERE, 1e6, None)[0] == 2
    assert wanted(replace(HERE, pinned=4), 0.0, None)[0] == 4


def test_it_starts_with_what_is_there() -> None:
    assert at_start(2, 8, gpus=1, idle=5, cores=2) == 5
    assert at_start(2, 8, gpus=2, idle=5, cores=2) == 2
    assert at_start(2, 8, gpus=0, idle=0, cores=4) == 4
    assert at_start(2, 3, gpus=0, idle=0, cores=64) == 3


@given(
    st.builds(
        Situation, st.integers(1, 4), st.integers(4, 9), st.integers(4, 9), st.integers(0, 3), st.integers(0, 20), st.integers(0, 20),
        st.just("bob"), st.none() | st.integers(4, 9), st.floats(0, 100), st.floats(0, 100),
    ),
    st.floats(0, 200),
)  # fmt: skip
def test_it_never_takes_more_than_there_is_nor_gives_more_than_may_be(situation: Situation, now: float) -> None:
    workers, _ = wanted(situation, now, 60.0)
    assert situation.least <= workers <= max(situation.most, situation.workers)
    assert max(0, workers - situation.workers) * situation.gpus <= situation.idle
