"""Whatever goes wrong in parking and resuming ends in a state that is true: told, with nothing lost that the driver has not lost."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

from gateway.pod.cuda.device import HELPERS
from gateway.pod.reactor import Reactor
from gateway.pod.waiting import Waiting
from gateway.protocol.errors import DeviceError

from ..doubles.cuda import MIB, Effect, Op, State
from ..doubles.cuda.program import Program
from .cuda_rig import CONTEXT, STATE, Rig, needs_double

pytestmark = needs_double
CODES = (1, 304, 401, 600, 800, 801, 999)
FULL = STATE + CONTEXT + MIB


class Kernel:
    """A kernel with a child process, both with state on the GPU."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        rig.take()
        self.main: Program = rig.program()
        code = "import device; device.start(); m = device.Memory(1 << 20); m.write(b'child'); print(1, flush=True)\n"
        code += "for line in sys.stdin: print(m.read(5), flush=True)"
        code = "import sys\n" + code
        self.main.do("import subprocess, sys")
        self.main.do(f"c = subprocess.Popen([sys.executable, '-c', {code!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)")
        self.main.do("c.stdout.readline() and None")
        self.pids = [self.main.pid, self.main.do("c.pid")]

    @property
    def states(self) -> list[State | None]:
        return [self.rig.node.state(pid) for pid in self.pids]

    def unharmed(self) -> bool:
        self.main.do("c.stdin.write(b'\\n'); c.stdin.flush()")
        return self.main.do("[kept(), c.stdout.readline()[2:7].decode()]") == [True, "child"]

    def parks(self) -> DeviceError | None:
        return self.rig.park(self.main)[0]

    def resumes(self) -> DeviceError | None:
        return self.rig.resume(self.main)[0]


@pytest.fixture
def kernel(rig: Rig) -> Kernel:
    return Kernel(rig)


def is_true(kernel: Kernel, error: DeviceError | None) -> None:
    """What the device says is what the driver says, and the kernel goes on from there."""
    node, device = kernel.rig.node, kernel.rig.device
    assert error is None or (str(error) and error.reason)
    assert error is None or not error.fatal
    if device.parked:
        assert kernel.states == [State.CHECKPOINTED] * 2
        assert node.used() == 0
        assert kernel.resumes() is None
    assert kernel.states == [State.RUNNING] * 2
    assert node.used() == FULL
    assert kernel.unharmed()
    assert kernel.parks() is None


@pytest.mark.parametrize("effect", [Effect.ANSWER, Effect.DONE], ids=lambda effect: effect.name)
@pytest.mark.parametrize("op", [Op.LOCK, Op.CHECKPOINT], ids=lambda op: op.name)
def test_a_call_that_fails_while_parking_is_undone(kernel: Kernel, op: Op, effect: Effect) -> None:
    device = kernel.rig.device
    facts = device._standing.facts
    for code, place in itertools.product(CODES, (0, 1)):
        with kernel.rig.node.fault(op, code, effect, skip=place, times=4 if code == 401 else 1) as fault:
            error = kernel.parks()
        assert fault.fired
        assert device.parked is (error is None)
        if device.parked:
            assert kernel.resumes() is None
        assert kernel.states == [State.RUNNING] * 2
        device._standing.facts = facts  # what is learned of a kernel holds for its life, and the next code wants another kernel
    is_true(kernel, None)


@pytest.mark.parametrize("effect", [Effect.ANSWER, Effect.DONE], ids=lambda effect: effect.name)
@pytest.mark.parametrize("op", [Op.RESTORE, Op.UNLOCK], ids=lambda op: op.name)
def test_a_call_that_fails_while_resuming_is_undone_or_tried_again(kernel: Kernel, op: Op, effect: Effect) -> None:
    assert kernel.parks() is None
    for code, place in itertools.product((1, 401, 800, 801, 999), (0, 1)):
        with kernel.rig.node.fault(op, code, effect, skip=place) as fault:
            error = kernel.resumes()
        assert fault.fired
        assert kernel.rig.device.parked is (error is not None)
        if error is None:
            assert kernel.states == [State.RUNNING] * 2
            assert kernel.parks() is None
        assert kernel.states == [State.CHECKPOINTED] * 2
    is_true(kernel, kernel.resumes())


def test_an_undo_that_fails_is_tried_again(kernel: Kernel) -> None:
    for op, times in itertools.product((Op.RESTORE, Op.UNLOCK), (1, 3)):
        with kernel.rig.node.fault(Op.CHECKPOINT, 999, skip=1), kernel.rig.node.fault(op, 800, times=times) as fault:
            error = kernel.parks()
        assert error is not None
        assert error.reason == "park_failed"
        assert fault.fired == times
        assert kernel.states == [State.RUNNING] * 2
    assert kernel.unharmed()


@pytest.mark.parametrize("op", [Op.STATE, Op.THREAD, Op.MEMORY], ids=lambda op: op.name)
def test_a_question_that_fails_changes_nothing(kernel: Kernel, op: Op) -> None:
    for place in range(8):
        with kernel.rig.node.fault(op, 304, Effect.ANSWER if op is not Op.MEMORY else Effect.VALUE, skip=place, value=100):
            error = kernel.parks()
        is_true(kernel, error)
        assert kernel.resumes() is None


@pytest.mark.parametrize("place", range(12))
def test_a_management_library_that_stops_answering_while_parking_costs_the_attempt_and_nothing_else(kernel: Kernel, place: int) -> None:
    with kernel.rig.node.fault(Op.MEMORY, 999, skip=place, times=3):
        error = kernel.parks()
    assert error is None or "nvmlDeviceGetMemoryInfo answered 999 (Unknown Error); it keeps its GPU." in str(error)
    is_true(kernel, error)


def test_an_undo_never_restores_without_knowing_that_there_is_room(kernel: Kernel) -> None:
    node, device = kernel.rig.node, kernel.rig.make(alarm_seconds=0.1)
    kernel.rig.device = device
    kernel.rig.take()
    answers: list[DeviceError | None] = []
    with node.fault(Op.CHECKPOINT, 999, pid=kernel.pids[1], seconds=0.3):
        device.park(kernel.main.pid, lambda error, size: answers.append(error))
        kernel.rig.until(lambda: node.state(kernel.main.pid) is State.CHECKPOINTED)
        with node.fault(Op.MEMORY, 999, times=-1):
            kernel.rig.until(lambda: "how much memory is free" in device.alarm)
            assert not node.calls(Op.RESTORE)
    kernel.rig.until(lambda: answers)
    is_true(kernel, answers[0])


def test_a_process_that_begins_with_cuda_while_the_others_leave_is_noticed_however_little_it_uses(kernel: Kernel) -> None:
    with kernel.rig.node.fault(Op.THREAD, 3, pid=kernel.pids[1], times=2):  # not there yet, in the first two looks
        error = kernel.parks()
    assert error is not None
    assert error.reason == "still_in_use"
    is_true(kernel, error)


def test_a_resume_whose_unlock_never_works_goes_back_to_parked_and_is_not_called_lost(kernel: Kernel) -> None:
    assert kernel.parks() is None
    with kernel.rig.node.fault(Op.UNLOCK, 999, times=-1):
        error = kernel.resumes()
    assert error is not None
    assert (error.reason, error.fatal) == ("resume_failed", False)
    is_true(kernel, error)


def test_a_state_that_the_driver_gives_up_while_parking_is_told_as_lost_and_may_still_be_on_the_gpu(kernel: Kernel) -> None:
    with kernel.rig.node.fault(Op.CHECKPOINT, 304, Effect.FAIL, pid=kernel.main.pid):
        error = kernel.parks()
    assert error is not None
    assert (error.reason, error.fatal, error.occupied) == ("state_lost", True, True)
    assert "restart" in str(error)
    assert not kernel.rig.device.parked


def test_a_restore_that_ran_out_of_memory_is_lost_and_leaves_the_gpu_empty(kernel: Kernel) -> None:
    assert kernel.parks() is None
    with kernel.rig.node.fault(Op.RESTORE, 2, Effect.POISON):
        error = kernel.resumes()
    assert error is not None
    assert (error.reason, error.fatal, error.occupied) == ("state_lost", True, False)
    assert kernel.rig.node.used() == 0


def test_an_undo_waits_for_memory_that_a_stranger_took_meanwhile(kernel: Kernel) -> None:
    node, device = kernel.rig.node, kernel.rig.make(alarm_seconds=0.1)
    kernel.rig.device = device
    kernel.rig.take()
    answers: list[DeviceError | None] = []
    with node.fault(Op.CHECKPOINT, 801, pid=kernel.pids[1], seconds=0.3):
        device.park(kernel.main.pid, lambda error, size: answers.append(error))
        kernel.rig.until(lambda: node.state(kernel.main.pid) is State.CHECKPOINTED)
        node.set_gpu(0, foreign=1300 * MIB)
        kernel.rig.until(lambda: device.alarm)
        assert not node.calls(Op.RESTORE)
        node.set_gpu(0, foreign=0)
        kernel.rig.until(lambda: answers)
    assert answers[0] is not None
    assert not answers[0].fatal
    assert kernel.states == [State.RUNNING] * 2
    assert kernel.unharmed()
    assert not device.alarm


# the helper dies


@pytest.mark.parametrize("hangs", [True, False])
def test_a_helper_that_is_killed_at_any_place_leaves_a_true_state(kernel: Kernel, hangs: bool) -> None:
    rig = kernel.rig
    rig.node.set(seconds=0.1)
    for op, place in itertools.product((Op.LOCK, Op.CHECKPOINT, Op.RESTORE, Op.UNLOCK), (0, 1)):
        answers: list[DeviceError | None] = []
        parking = op in (Op.LOCK, Op.CHECKPOINT)
        if rig.device.parked is parking:
            assert (kernel.resumes() if parking else kernel.parks()) is None
        with rig.node.fault(op, 0, Effect.HANG if hangs else Effect.SLOW, skip=place, seconds=0.02) as fault:
            if parking:
                rig.device.park(kernel.main.pid, lambda error, size, to=answers: to.append(error))
            else:
                rig.device.resume(kernel.main.pid, rig.node.uuids[:1], lambda error, size, to=answers: to.append(error))
            rig.until(lambda fault=fault: fault.fired)
            rig.killed()
        rig.until(lambda to=answers: to)
        is_true(kernel, answers[0])


def test_a_restore_that_goes_on_after_its_helper_was_killed_is_seen_and_undone(kernel: Kernel) -> None:
    rig, answers = kernel.rig, []
    assert kernel.parks() is None
    rig.node.set(seconds=1.0)  # the next helper is there sooner
    rig.device.resume(kernel.main.pid, rig.node.uuids[:1], lambda error, size: answers.append(error))
    rig.until(lambda: rig.node.used() > 0)  # it has begun, in the kernel's own process
    rig.killed()
    rig.until(lambda: answers)
    assert answers[0] is not None
    is_true(kernel, answers[0])


def test_a_target_left_failed_by_its_dead_helper_is_told_as_lost(kernel: Kernel) -> None:
    rig, answers = kernel.rig, []
    rig.node.set(seconds=0.5, desync=1)
    rig.device.park(kernel.main.pid, lambda error, size: answers.append(error))
    rig.until(lambda: rig.device._operation and "checkpoint" in rig.device._operation.step)
    rig.pass_time(0.1)
    rig.killed()
    rig.until(lambda: answers)
    assert answers[0].fatal
    assert answers[0].reason == "state_lost"


def test_an_idle_helper_that_dies_is_replaced(kernel: Kernel) -> None:
    kernel.rig.killed()
    is_true(kernel, kernel.parks())


def test_a_helper_that_can_not_be_started_costs_no_state(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, tries = kernel.rig, list[int]()
    assert kernel.parks() is None

    def full(*arguments: object) -> None:
        tries.append(1)
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr("gateway.pod.cuda.device.AGAIN_SECONDS", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr("gateway.pod.cuda.device.Helper", full)
        rig.killed()
        error = kernel.resumes()
        assert error is not None
        assert (error.reason, error.fatal) == ("helper_lost", False)
        assert "could not be started" in str(error)
    is_true(kernel, error)
    assert kernel.resumes() is None
    answers: list[DeviceError | None] = []
    with rig.node.fault(Op.CHECKPOINT, 0, Effect.HANG) as fault:
        rig.device.park(kernel.main.pid, lambda error, size: answers.append(error))
        rig.until(lambda: fault.fired)
        with monkeypatch.context() as patch:
            patch.setattr("gateway.pod.cuda.device.Helper", full)
            tries.clear()
            rig.killed()
            rig.until(lambda: len(tries) > 2 * HELPERS)
    rig.until(lambda: answers)
    is_true(kernel, answers[0])


def test_nobody_waits_for_a_driver_that_does_not_say_whether_a_gpu_is_used(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pod.cuda.device.LOOK_SECONDS", 0.05)
    rig.take()
    program, helper = rig.program(), rig.device._helper
    assert helper is not None
    os.kill(helper.pid, signal.SIGSTOP)
    assert rig.uses(program, 2.0) is False
    os.kill(helper.pid, signal.SIGKILL)


# the kernel dies


@pytest.mark.parametrize("op", [Op.LOCK, Op.CHECKPOINT], ids=lambda op: op.name)
def test_a_process_that_dies_while_parking_takes_its_state_along_and_no_other(kernel: Kernel, op: Op) -> None:
    child = kernel.pids[1]
    with kernel.rig.node.fault(op, 0, Effect.KILL, pid=child):
        error = kernel.parks()
    assert error is None
    assert kernel.states == [State.CHECKPOINTED, None]
    assert kernel.resumes() is None
    assert kernel.main.do("kept()")


def test_a_process_that_dies_parked_is_not_missed(kernel: Kernel) -> None:
    assert kernel.parks() is None
    os.kill(kernel.pids[1], signal.SIGKILL)
    assert kernel.resumes() is None
    assert kernel.main.do("kept()")


def test_a_kernel_that_dies_while_the_driver_hangs_is_forgotten_and_the_next_one_parks(kernel: Kernel) -> None:
    rig, answers = kernel.rig, []
    with rig.node.fault(Op.CHECKPOINT, 0, Effect.HANG) as fault:
        rig.device.park(kernel.main.pid, lambda error, size: answers.append(error))
        rig.until(lambda: fault.fired)
        kernel.main.end()
        rig.device.forget(kernel.main.pid, lambda: None)
        rig.take()
        following = rig.program()
        assert rig.park(following)[0] is None
        assert rig.resume(following)[0] is None
        assert following.do("kept()")
    assert not answers


def test_a_cell_that_waits_for_a_driver_that_hangs_says_so() -> None:
    def text(alarm: str) -> str:
        return Waiting(Reactor(), None, None, None, 0.0, lambda: True, lambda: alarm).text(0.0, 40.0)  # type: ignore[arg-type]

    assert text("") == "Waiting for a GPU. 40 s so far; interrupt the kernel to stop waiting."
    assert "NVIDIA's driver has not come back; it may still come back, or restart the kernel." in text("NVIDIA's driver has not come back")


def test_a_driver_call_that_hangs_is_an_alarm_that_ends_with_it(rig: Rig) -> None:
    device = rig.device = rig.make(alarm_seconds=0.1)
    rig.take()
    kernel, answers = rig.program(), []
    with rig.node.fault(Op.CHECKPOINT, 0, Effect.HANG):
        device.park(kernel.pid, lambda error, size: answers.append(error))
        rig.until(lambda: f"checkpoint of process {kernel.pid}" in device.alarm)
        assert not answers
    rig.until(lambda: answers)
    assert answers == [None]
    assert not device.alarm
