"""Random stories: a kernel is parked and resumed while several things go wrong at once, and what the device says is always true."""

from __future__ import annotations

import random
from contextlib import ExitStack, suppress

import pytest

from gateway.protocol.errors import DeviceError

from ..doubles.cuda import Effect, Fault, Op, State
from .cuda_rig import Rig, needs_double
from .test_cuda_faults import FULL, Kernel

pytestmark = needs_double
MOVES, QUESTIONS = (Op.LOCK, Op.CHECKPOINT, Op.RESTORE, Op.UNLOCK), (Op.STATE, Op.THREAD, Op.MEMORY)
# A restore that answers 2 or 304 is the end, and told as that: see the faults. 3 is no failure: the process has no CUDA.
CODES = (1, 401, 600, 800, 801, 999)
TURNS = 6


class Story:
    """``log``: what went wrong in which turn, shown where a story fails."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.random, self.log = random.Random(seed), list[object]()
        rig.node.set(seconds=self.random.choice([0.0, 0.02]))
        self.rig, self.kernel, self.facts = rig, Kernel(rig), rig.device._standing.facts

    def turn(self) -> None:
        device, answers = self.rig.device, list[DeviceError | None]()
        device._standing.facts = self.facts  # what is learned of a kernel holds for its life, and the next turn wants another kernel
        with ExitStack() as stack:
            hanging = [fault for fault, hangs in (self.misfortune(stack) for _ in range(self.random.randrange(4))) if hangs]
            if device.parked:
                device.resume(self.kernel.main.pid, self.rig.node.uuids[:1], lambda error, size: answers.append(error))
            else:
                device.park(self.kernel.main.pid, lambda error, size: answers.append(error))
            deaths = self.random.randrange(4)  # of helpers that hang, before the driver comes back
            while not answers:
                with suppress(TimeoutError):
                    self.rig.until(lambda: answers, patience=0.3)
                if not answers and any(fault.fired for fault in hanging):
                    if deaths:
                        deaths -= 1
                        self.rig.killed()
                    else:
                        for fault in hanging:
                            fault.lift()
        self.log.append(str(answers[0]))
        self.is_true(answers[0])

    def misfortune(self, stack: ExitStack) -> tuple[Fault, bool]:
        op, code = self.random.choice(MOVES + QUESTIONS), self.random.choice(CODES)
        effects = (Effect.ANSWER, Effect.ANSWER, Effect.SLOW) if op in QUESTIONS else (Effect.ANSWER, Effect.DONE, Effect.SLOW, Effect.HANG)
        effect, skip, times = self.random.choice(effects), self.random.randrange(4), self.random.choice([1, 1, 2, 3])
        self.log.append((op.name, effect.name, code, skip, times))
        seconds = 0.02 if effect is Effect.SLOW else 0.0
        return stack.enter_context(self.rig.node.fault(op, code, effect, skip=skip, times=times, seconds=seconds)), effect is Effect.HANG

    def is_true(self, error: DeviceError | None) -> None:
        assert error is None or not error.fatal
        if self.rig.device.parked:
            assert (self.kernel.states, self.rig.node.used()) == ([State.CHECKPOINTED] * 2, 0)
        else:
            assert (self.kernel.states, self.rig.node.used()) == ([State.RUNNING] * 2, FULL)
            assert self.kernel.unharmed()


@pytest.mark.parametrize("seed", range(5))
def test_whatever_goes_wrong_at_once_the_device_says_the_truth(rig: Rig, seed: int) -> None:
    story = Story(rig, seed)
    for _ in range(TURNS):
        story.turn()
        print(*story.log, sep="\n")
        story.log.clear()
