"""The line that a notebook shows while its cell waits for a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pod.waiting import LATE, Waiting


def line(place: dict[str, Any], passed: float, alarm: str = "", brokered: bool = True) -> str:
    """What is shown so many seconds after the broker's word."""
    nothing: Any = None
    waiting = Waiting(nothing, nothing, nothing, nothing, 0.3, lambda: brokered, lambda: alarm)
    waiting.placed(place)
    return waiting.text(waiting._placed_at, waiting._placed_at + passed)


NEXT = {"position": 1, "of": 2, "holders": ["b.ipynb of bob"], "expected": 5.0}


@pytest.mark.parametrize(
    ("passed", "said"),
    [
        (1.0, ", about 4.0 s to go."),
        (4.5, ", any moment now."),
        (5.0 + LATE - 0.5, ", any moment now."),
        (5.0 + LATE + 1, ", which is late."),
    ],
)
def test_a_gpu_that_does_not_come_in_its_time_is_said_to_be_late(passed, said):
    assert said in line(NEXT, passed)


def test_one_that_is_late_is_not_on_time_again_because_the_broker_speaks(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("gateway.pod.waiting.time.monotonic", lambda: now[0])
    nothing: Any = None
    waiting = Waiting(nothing, nothing, nothing, nothing, 0.3, lambda: True, lambda: "")
    waiting.placed(NEXT | {"expected": 0.0})
    now[0] += 10
    waiting.placed(NEXT | {"expected": 0.5, "holders": ["b.ipynb of bob, not answering"]})
    assert "not answering, which is late." in waiting.text(100.0, now[0])
    waiting.placed(NEXT | {"expected": 2.0})
    assert "about 2.0 s to go." in waiting.text(100.0, now[0])


def test_who_holds_it_and_how_many_are_before_is_said():
    assert line(NEXT | {"expected": None}, 7.0) == (
        "Waiting for a GPU: you are next, held by b.ipynb of bob. 7 s so far; interrupt the kernel to stop waiting."
    )
    assert ": place 2 of 2, held by" in line(NEXT | {"position": 2}, 0.0)


def test_where_nobody_can_grant_one_that_is_said():
    assert "no gateway answers at the moment" in line(NEXT, 0.0, brokered=False)
    assert "the driver hangs; it may still come back" in line(NEXT, 0.0, alarm="the driver hangs")
