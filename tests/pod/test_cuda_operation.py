"""What is known of a move that is under way."""

from __future__ import annotations

from gateway.pod.cuda.operation import ALARM_BYTES, Operation


def operation() -> Operation:
    return Operation("park", 0, lambda error, size: None, {}, since=0.0)


def test_a_step_that_is_told_again_is_the_same_step_so_that_waiting_for_ever_is_an_alarm() -> None:
    move = operation()
    for now in (1.0, 2.0, 3.0):
        move.told({"step": "wait for memory", "pid": 7}, now)
    assert (move.step, move.since) == ("wait for memory of process 7", 1.0)
    move.told({"step": "restore", "pid": 7}, 4.0)
    assert (move.step, move.since) == ("restore of process 7", 4.0)


def test_what_was_told_before_stays_known() -> None:
    move = operation()
    move.told({"processes": [[7, 1]], "before": {"GPU-1": 5}}, 1.0)
    move.told({"sizes": {"7": {"GPU-1": 3}}}, 2.0)
    assert (move.processes, move.before, move.sizes) == ([[7, 1]], {"GPU-1": 5}, {"7": {"GPU-1": 3}})
    assert move.since == 0.0


def test_a_large_state_may_take_longer() -> None:
    move = operation()
    assert move.patience(30.0, parked=0) == 30.0
    assert move.patience(30.0, parked=10 * ALARM_BYTES) == 40.0
    move.told({"before": {"GPU-1": 80 * ALARM_BYTES, "GPU-2": 20 * ALARM_BYTES}}, 1.0)
    assert move.patience(30.0, parked=0) == 130.0
