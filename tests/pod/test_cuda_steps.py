"""A process that ends while the driver is asked about it: it takes its state along, and that is no failure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.pod.cuda import driver
from gateway.pod.cuda.driver import DriverError
from gateway.pod.cuda.steps import ENDING_SECONDS, Steps
from gateway.pod.processes import Identity, family


class Unreachable:
    """A driver that can't reach the process, in whatever it is asked."""

    def state(self, pid: int) -> int:
        raise DriverError("cuCheckpointProcessGetState", driver.OPERATING_SYSTEM)


class Clock:
    """Time passes by pausing; ``turns[n]`` is done in the n-th pause."""

    def __init__(self, turns: dict[int, object]) -> None:
        self.now, self._turns, self._pauses = 0.0, turns, 0

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self._pauses += 1
        act = self._turns.get(self._pauses)
        if callable(act):
            act()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def steps(clock: Clock) -> Steps:
    return Steps(Unreachable(), lambda fields: None, lambda process: None, pause=clock.pause, clock=lambda: clock.now)  # type: ignore[arg-type]


def identity(process: subprocess.Popen[bytes]) -> Identity:
    return family(process.pid, "")[0]


def test_one_that_takes_a_moment_to_end_is_gone_without_an_error(process: subprocess.Popen[bytes]) -> None:
    def end() -> None:
        process.kill()
        process.wait()

    assert steps(Clock({5: end})).state(identity(process)) is None


def test_one_that_lives_on_and_cannot_be_reached_is_an_error_in_the_end(process: subprocess.Popen[bytes]) -> None:
    clock = Clock({})
    with pytest.raises(DriverError, match="304"):
        steps(clock).state(identity(process))
    assert ENDING_SECONDS < clock.now < 2 * ENDING_SECONDS
