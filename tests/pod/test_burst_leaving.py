"""When all ranks of a group leave: at one commit, or not at all."""

from __future__ import annotations

from gateway.pod.burst.leaving import AGAIN, PATIENCE, Answer, Leaving


def test_all_leave_where_the_foremost_is() -> None:
    leaving = Leaving(3)
    assert leaving.ask(0.0) == 1
    assert leaving.heard(0, 1, 7, 0.1) is None
    assert leaving.heard(2, 1, 8, 0.1) is None
    assert leaving.heard(1, 1, 7, 0.2) == Answer(1, 8)
    assert leaving.ask(1.0) is None, "it is decided"


def test_nobody_waits_for_a_rank_that_is_through() -> None:
    leaving = Leaving(2)
    leaving.ask(0.0)
    leaving.heard(0, 1, 7, 0.1)
    assert leaving.stay(0.2) == Answer(1, None)
    assert leaving.heard(1, 1, 7, 0.3) is None, "what crossed with the answer is no news"


def test_nobody_waits_long_for_one_that_comes_to_no_commit_and_it_is_asked_again() -> None:
    leaving = Leaving(2)
    leaving.ask(0.0)
    leaving.heard(0, 1, 7, 5.0)
    assert leaving.late(5.0 + PATIENCE) is None
    assert leaving.late(5.1 + PATIENCE) == Answer(1, None)
    assert leaving.ask(5.2 + PATIENCE) is None
    assert leaving.ask(5.2 + PATIENCE + AGAIN) == 2


def test_one_question_at_a_time() -> None:
    leaving = Leaving(2)
    assert (leaving.ask(0.0), leaving.ask(0.1)) == (1, None)


def test_a_wish_that_is_withdrawn_lets_those_that_wait_go_on() -> None:
    leaving = Leaving(2)
    assert leaving.stay(0.0) is None
    leaving.ask(0.0)
    leaving.heard(0, 1, 7, 0.1)
    assert leaving.stay(0.2) == Answer(1, None)
