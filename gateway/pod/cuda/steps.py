"""One process at a time through the driver's states: locked, checkpointed, restored, unlocked.

What counts is the driver's word on the state, read before and after each call; what a call answered is only its story. Nothing
here may be tried again without having read the state.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

from ...protocol.errors import DeviceError
from ..processes import Identity, alive
from . import driver
from .driver import CHECKPOINTED, FAILED, LOCKED, RUNNING, Cuda, DriverError

LOCK_SECONDS = 5.0  # on the way back to where a process was
BUSY_SECONDS = 60.0  # for a move that is under way already, begun by a helper that has died
ENDING_SECONDS = 1.0  # from a process's kill to its end, where the driver can't reach it any more
TRIES = 4  # of a call that answers an error, on the way back
FATAL = frozenset({driver.OUT_OF_MEMORY, driver.OPERATING_SYSTEM})  # answers to a restore after which only killing helps
_BACK = {
    (RUNNING, CHECKPOINTED): "lock",
    (LOCKED, CHECKPOINTED): "checkpoint",
    (CHECKPOINTED, RUNNING): "restore",
    (LOCKED, RUNNING): "unlock",
}

Say = Callable[[dict[str, Any]], None]


class Lost(Exception):
    """A process's CUDA state can't be brought to where it should be."""


class Poisoned(Lost):
    """A restore has failed in a way after which only killing helps. The driver's word on the state doesn't show it."""


class Steps:
    """``say(fields)`` tells what is being done; ``ready(process)`` is called before each restore and returns once it may be tried;
    ``wanted()`` says whether anybody waits for it still: nothing goes forward where nobody does."""

    def __init__(
        self, cuda: Cuda, say: Say, ready: Callable[[Identity], None], wanted: Callable[[], bool] = lambda: True,
        pause: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._cuda, self._say, self._ready, self._wanted, self._pause, self._clock = cuda, say, ready, wanted, pause, clock

    # forward: each call once, and none where nobody waits any more (``DeviceError``)

    def lock(self, process: Identity, seconds: float) -> None:
        """Within ``seconds``, for GPU work under way. Raises ``DriverError``."""
        for attempt in range(TRIES):
            try:
                return self._once("lock", process, (RUNNING,), LOCKED, seconds)
            except DriverError as error:
                if error.code != driver.ILLEGAL_STATE or attempt == TRIES - 1:  # the answer of a process that is just finishing its start
                    raise
                self._pause(0.05 * 2**attempt)
        return None

    def checkpoint(self, process: Identity) -> None:
        """Of a locked process. Raises ``DriverError``, or ``Lost`` where the state went with it."""
        self._once("checkpoint", process, (LOCKED,), CHECKPOINTED)

    def restore(self, process: Identity, moves: Sequence[tuple[str, str]]) -> None:
        """Of a checkpointed process, which is locked then. Raises ``DriverError``, or ``Lost``: many a failed restore is the end."""
        self._ready(process)
        self._once("restore", process, (CHECKPOINTED,), LOCKED, moves)

    # back, or on, from wherever it is

    def settle(self, processes: Iterable[Identity], goal: int) -> None:
        """Bring all to ``goal`` (RUNNING or CHECKPOINTED). Raises ``Lost`` where one can't be, once all others are there."""
        lost: Optional[Lost] = None
        for process in processes:
            try:
                self.bring(process, goal)
            except Lost as exc:
                lost = exc
        if lost is not None:
            raise lost

    def bring(self, process: Identity, goal: int) -> None:
        """As many steps as it takes, tried again where that is known to do no harm. Raises ``Lost``."""
        errors, end, state, step, done = 0, self._clock() + BUSY_SECONDS, None, "", ""
        while True:
            trouble: Optional[DriverError] = None
            try:
                state, step = self.state(process), ""
                if state in (None, goal):
                    return
                if state == FAILED:
                    raise Lost(f"the driver has given process {process[0]} up")
                step = _BACK.get((state, goal), "")
                if step == "restore":
                    self._ready(process)
                if step and step != done:  # one that was answered with success shows in the state, if not at once
                    self._do(step, process, *((LOCK_SECONDS,) if step == "lock" else ()))
                    done = step
                    continue
            except DriverError as error:
                trouble = error
            if trouble is not None and step and trouble.code != driver.ILLEGAL_STATE:  # a question may be asked for longer
                errors += 1
                if step == "restore" and trouble.code in FATAL:
                    raise Poisoned(str(trouble)) from trouble
                if errors == TRIES:
                    raise Lost(str(trouble)) from trouble
            elif self._clock() > end:
                raise Lost(str(trouble) if trouble else f"process {process[0]} has stayed in state {state}")
            self._pause(min(1.0, 0.05 * 2**errors))

    def state(self, process: Identity) -> Optional[int]:
        """None: it is gone. Raises ``DriverError``."""
        if not alive(process):
            return None
        try:
            return self._cuda.state(process[0])
        except DriverError:
            if not self.ends(process):
                raise
            return None

    def ends(self, process: Identity) -> bool:
        """Whether a process that the driver can't reach is on its way out: a killed one takes a moment, with each of its threads."""
        end = self._clock() + ENDING_SECONDS
        while alive(process):
            if self._clock() > end:
                return False
            self._pause(0.01)
        return True

    # inside

    def _once(self, step: str, process: Identity, before: Sequence[int], goal: int, *arguments: Any) -> None:
        state = self.state(process)
        if state is None or state == goal:
            return
        if state == FAILED:
            raise Lost(f"the driver has given process {process[0]} up")
        if not self._wanted():
            raise DeviceError("The kernel has ended meanwhile: nothing of it is moved any more.", reason="abandoned")
        try:
            if state not in before:
                raise DriverError(step, driver.ILLEGAL_STATE)
            self._do(step, process, *arguments)
        except DriverError as error:
            state = self.state(process)
            if state is None or state == goal:
                return
            if state == FAILED:
                raise Lost(str(error)) from error
            if step == "restore" and error.code in FATAL:
                raise Poisoned(str(error)) from error
            raise

    def _do(self, step: str, process: Identity, *arguments: Any) -> None:
        self._say({"step": step, "pid": process[0]})
        getattr(self._cuda, step)(process[0], *arguments)
