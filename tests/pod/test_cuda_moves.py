"""One process through the driver's states, with a driver that lies, stays silent or is slow; time is virtual."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from gateway.pod.child import started
from gateway.pod.cuda.driver import CHECKPOINTED, ILLEGAL_STATE, LOCKED, OUT_OF_MEMORY, RUNNING, DriverError
from gateway.pod.cuda.steps import BUSY_SECONDS, TRIES, Lost, Poisoned, Steps
from gateway.protocol.errors import DeviceError

ME = (os.getpid(), started(os.getpid()) or 0)
GOALS = {"lock": LOCKED, "checkpoint": CHECKPOINTED, "restore": LOCKED, "unlock": RUNNING}


class World:
    """A driver and its clock. ``wrong`` says what a call does in the place of what it should, by its name."""

    def __init__(self, state: int) -> None:
        self.now, self.current, self.calls = 0.0, state, list[str]()
        self.wrong: dict[str, Callable[[], None]] = {}
        self.wanted = True
        self.steps = Steps(self, lambda said: None, lambda process: None, lambda: self.wanted, self.pause, lambda: self.now)  # type: ignore[arg-type]

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def state(self, pid: int) -> int:
        return self.current

    def __getattr__(self, name: str) -> Any:
        def call(pid: int, *arguments: object) -> None:
            self.calls.append(name)
            if name in self.wrong:
                self.wrong[name]()
            else:
                self.current = GOALS[name]

        return call

    def answers(self, name: str, code: int) -> None:
        def refuse() -> None:
            raise DriverError(name, code)

        self.wrong[name] = refuse


def test_from_anywhere_it_goes_back_in_as_many_steps_as_it_takes() -> None:
    world = World(CHECKPOINTED)
    world.steps.bring(ME, RUNNING)
    world.steps.bring(ME, CHECKPOINTED)
    assert world.calls == ["restore", "unlock", "lock", "checkpoint"]


def test_a_driver_that_answers_success_and_does_nothing_is_asked_once_and_given_up_in_the_end() -> None:
    world = World(LOCKED)
    world.wrong["unlock"] = lambda: None
    with pytest.raises(Lost, match="has stayed in state 1"):
        world.steps.bring(ME, RUNNING)
    assert world.calls == ["unlock"]
    assert BUSY_SECONDS < world.now < BUSY_SECONDS + 2


def test_a_step_that_shows_late_is_waited_for() -> None:
    world = World(LOCKED)
    world.wrong["unlock"] = lambda: None
    pause = world.pause

    def later(seconds: float) -> None:
        pause(seconds)
        world.current = RUNNING if world.now > 5 else LOCKED

    world.steps._pause = later
    world.steps.bring(ME, RUNNING)
    assert world.calls == ["unlock"]


def test_a_step_that_fails_is_tried_again_a_few_times() -> None:
    world = World(LOCKED)
    world.answers("unlock", 999)
    with pytest.raises(Lost) as lost:
        world.steps.bring(ME, RUNNING)
    assert not isinstance(lost.value, Poisoned)
    assert world.calls == ["unlock"] * TRIES


def test_a_question_is_asked_for_longer_than_a_step_is_tried() -> None:
    world = World(LOCKED)
    asked = []

    def state(pid: int) -> int:
        asked.append(world.now)
        if world.now < BUSY_SECONDS / 2:
            raise DriverError("state", 999)
        return world.current

    world.state = state  # type: ignore[method-assign]
    world.steps.bring(ME, RUNNING)
    assert (world.calls, world.current) == (["unlock"], RUNNING)
    world.now, world.current = -1e9, LOCKED
    with pytest.raises(Lost, match="999"):
        world.steps.bring(ME, RUNNING)
    assert world.calls == ["unlock"], "nothing is done to what isn't known"


def test_a_restore_that_ran_out_of_memory_is_not_tried_again() -> None:
    world = World(CHECKPOINTED)
    world.answers("restore", OUT_OF_MEMORY)
    for move in (lambda: world.steps.restore(ME, ()), lambda: world.steps.bring(ME, RUNNING)):
        with pytest.raises(Poisoned):
            move()
    assert world.calls == ["restore"] * 2


def test_a_process_that_is_finishing_its_start_is_locked_a_moment_later() -> None:
    world = World(RUNNING)
    world.answers("lock", ILLEGAL_STATE)
    pause = world.pause

    def later(seconds: float) -> None:
        pause(seconds)
        world.wrong.clear()

    world.steps._pause = later
    world.steps.lock(ME, 1.0)
    assert (world.calls, world.current) == (["lock"] * 2, LOCKED)


def test_nothing_goes_forward_that_nobody_waits_for_and_everything_goes_back() -> None:
    world = World(RUNNING)
    world.wanted = False
    with pytest.raises(DeviceError, match="nothing of it is moved"):
        world.steps.lock(ME, 1.0)
    assert world.calls == []
    world.current = LOCKED
    world.steps.bring(ME, RUNNING)
    assert world.calls == ["unlock"]
