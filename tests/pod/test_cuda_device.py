"""A kernel's CUDA state leaves its GPU and comes back: what a supervisor's device does on the double's machine."""

from __future__ import annotations

import os
import signal

import pytest

from gateway.pod.processes import on_host
from gateway.protocol.model import Rung

from ..doubles.cuda import GIB, MIB, Effect, Op, State
from .cuda_rig import STATE, Rig, needs_double

pytestmark = needs_double
STRANGER = {"ELASTIC_SUPERVISOR": "another"}  # a program that isn't of the kernel
two_gpus = pytest.mark.parametrize("rig", [{"gpus": 2}], indirect=True)


def test_state_leaves_the_gpu_and_comes_back_unharmed(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    error, size = rig.park(kernel)
    assert error is None
    assert size == STATE
    assert rig.node.used() == 0
    assert rig.device.parked
    kernel.begin("kept()")
    assert not kernel.answered(0.1)
    assert rig.resume(kernel) == (None, size)
    assert kernel.answer() is True
    assert not rig.device.parked


def test_a_gpu_that_is_known_by_its_number_is_left_and_had_again(rig: Rig) -> None:
    rig.take("0")
    kernel = rig.program()
    assert rig.park(kernel) == (None, STATE)
    assert rig.node.used() == 0
    assert rig.resume(kernel, "0") == (None, STATE)
    assert kernel.do("kept()")


def test_work_that_goes_on_is_told_until_it_ends(rig: Rig) -> None:
    for gpu in (rig.node.uuids[0], "0"):
        rig.take(gpu)
        kernel, stranger = rig.program(), rig.program(**STRANGER)
        assert not rig.uses(kernel, 2.0)
        stranger.do("device.work(400)")
        assert rig.uses(kernel, 0.2) is (not on_host()), "where the driver speaks of other process ids, everybody counts"
        stranger.end()
        kernel.do("device.work(400)")
        assert rig.uses(kernel, 0.2)
        rig.pass_time(0.8)
        assert not rig.uses(kernel, 0.2)
        assert rig.uses(kernel, 5.0)
        kernel.end()
    nobody = rig.make()
    assert not rig.answer_of(lambda done: nobody.uses(1, 2.0, done)), "it holds no GPU"


def test_all_processes_of_a_kernel_are_locked_before_one_is_checkpointed_and_restored_before_one_is_unlocked(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    kernel.do("import subprocess, sys, json")
    code = "import device; device.start(); m = device.Memory(1 << 20); print(1, flush=True); input()"
    kernel.do(f"start = lambda new: subprocess.Popen([sys.executable, '-c', {code!r}], stdin=-1, stdout=-1, start_new_session=new)")
    kernel.do("c = [start(False), start(True)]")
    kernel.do("[p.stdout.readline() for p in c] and None")
    assert rig.park(kernel)[0] is None
    assert rig.node.used() == 0
    assert rig.resume(kernel)[0] is None
    calls = rig.node.calls(Op.LOCK, Op.CHECKPOINT, Op.RESTORE, Op.UNLOCK)
    assert [call.op for call in calls] == [op for op in (Op.LOCK, Op.CHECKPOINT, Op.RESTORE, Op.UNLOCK) for _ in range(3)]
    assert [call.pid for call in calls[6:9]] == [call.pid for call in reversed(calls[3:6])]
    assert kernel.do("kept()")


def test_a_process_that_has_turned_its_back_on_the_kernel_is_found_by_its_environment(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    code = "import device, os, time; device.start(); print(os.getpid(), flush=True); time.sleep(60)"
    kernel.do("import subprocess, sys")
    kernel.do(f"sh = subprocess.Popen(['sh', '-c', 'setsid \"$0\" -c \"$1\" & wait', sys.executable, {code!r}], stdout=subprocess.PIPE)")
    pid = int(kernel.do("sh.stdout.readline().decode()"))
    kernel.do("sh.kill(); sh.wait()")
    assert rig.park(kernel)[0] is None
    assert rig.node.state(pid) is State.CHECKPOINTED
    os.kill(pid, 9)


def test_what_a_kernel_has_left_on_its_gpu_is_gone_before_that_is_let_go_and_what_never_touched_it_goes_on(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    on_gpu, beside = rig.program(), rig.program(start=False)  # of the same mark, in sessions of their own
    kernel.end()
    seen: list[bool] = []
    rig.device.forget(kernel.pid, lambda: seen.append(on_gpu.process.poll() is not None and rig.node.used() == 0))
    rig.until(lambda: seen)
    assert seen == [True] and beside.do("1") == 1


def test_a_sweep_that_never_comes_back_lets_go_some_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pod.cuda.device.SWEEP_SECONDS", 0.05)
    rig.take()
    kernel = rig.program()
    kernel.end()
    helper, gone = rig.device._helper, list[bool]()
    assert helper is not None
    os.kill(helper.pid, signal.SIGSTOP)
    rig.device.forget(kernel.pid, lambda: gone.append(True))
    rig.until(lambda: gone)
    os.kill(helper.pid, signal.SIGCONT)
    assert gone == [True]


@pytest.mark.parametrize("dies", [True, False])
def test_what_is_left_is_ended_though_the_driver_does_not_tell_who_that_is(rig: Rig, monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    monkeypatch.setattr("gateway.pod.cuda.device.SWEEP_SECONDS", 1.0)
    rig.take()
    kernel, left, gone = rig.program(), rig.program(), list[bool]()
    kernel.end()
    with rig.node.fault(Op.THREAD, 999, Effect.HANG if dies else Effect.ANSWER, times=-1) as fault:
        rig.device.forget(kernel.pid, lambda: gone.append(left.process.poll() is not None and rig.node.used() == 0))
        rig.until(lambda: fault.fired)
        if dies:
            rig.killed()
        rig.until(lambda: gone)
    assert gone == [True]


def test_a_kernel_without_cuda_parks_at_once_and_needs_no_resume(rig: Rig) -> None:
    rig.take()
    assert rig.park(rig.program(start=False)) == (None, 0)
    assert not rig.device.parked


def test_a_process_that_has_only_begun_with_cuda_can_not_go_elsewhere(rig: Rig) -> None:
    rig.take()
    kernel = rig.program(start=False)
    kernel.do("import device; device.call('cuInit', 0)")
    assert rig.park(kernel) == (None, 0)
    assert rig.device.parked
    rig.node.add_gpu(GIB)
    error, _ = rig.resume(kernel, rig.node.uuids[1])
    assert error is not None
    assert error.reason == "wrong_gpu"
    assert rig.resume(kernel)[0] is None


@two_gpus
def test_a_kernel_that_sees_all_gpus_resumes_on_another_and_is_read_back_there(rig: Rig) -> None:
    a, b = rig.node.uuids
    rig.take(a, visible=(a, b))
    assert rig.device.probe() == (Rung.ANYWHERE, "")
    kernel = rig.program()
    rig.park(kernel)
    assert rig.resume(kernel, b)[0] is None
    assert (rig.node.used(0), rig.node.used(1)) == (0, STATE)
    assert kernel.do("[kept(), device.device_uuid()]") == [True, b]
    assert rig.park(kernel)[0] is None
    assert rig.resume(kernel, b)[0] is None


@two_gpus
def test_a_map_that_the_driver_ignores_is_noticed_and_the_state_stays_parked(rig: Rig) -> None:
    a, b = rig.node.uuids
    rig.node.set(migrates=0)
    rig.take(a, visible=(a, b))
    kernel = rig.program()
    rig.park(kernel)
    error, _ = rig.resume(kernel, b)
    assert error is not None
    assert (error.reason, error.fatal) == ("not_moved", False)
    assert (rig.node.state(kernel.pid), rig.node.used(0), rig.node.used(1)) == (State.CHECKPOINTED, 0, 0)
    assert rig.device.probe()[0] is Rung.SAME_GPU
    assert rig.resume(kernel, a)[0] is None
    assert kernel.do("kept()")


@two_gpus
def test_a_kernel_that_sees_only_its_own_gpu_resumes_there_alone(rig: Rig) -> None:
    a, b = rig.node.uuids
    rig.take(a)
    assert rig.device.probe()[0] is Rung.SAME_GPU
    assert "visible_devices" in rig.device.probe()[1]
    kernel = rig.program(CUDA_VISIBLE_DEVICES=a)
    rig.park(kernel)
    error, _ = rig.resume(kernel, b)
    assert error is not None
    assert not error.fatal
    assert rig.resume(kernel, a)[0] is None
    assert kernel.do("kept()")


def test_state_that_does_not_fit_into_host_memory_stays_on_the_gpu(rig: Rig) -> None:
    rig.node.add_gpu(1 << 43)
    rig.take(rig.node.uuids[1])
    kernel = rig.program(size=1 << 42, CUDA_VISIBLE_DEVICES="1")
    error, _ = rig.park(kernel)
    assert error is not None
    assert (error.reason, error.fatal) == ("does_not_fit", False)
    assert not rig.node.calls(Op.LOCK)


def test_memory_that_a_stranger_has_given_back_since_makes_the_kernels_own_no_smaller(rig: Rig) -> None:
    rig.node.add_gpu(1 << 43)
    rig.node.set_gpu(1, foreign=1 << 42)
    rig.take(rig.node.uuids[1])
    rig.node.set_gpu(1, foreign=0)
    error, _ = rig.park(rig.program(size=1 << 42, CUDA_VISIBLE_DEVICES="1"))
    assert error is not None
    assert error.reason == "does_not_fit"
    assert not rig.node.calls(Op.LOCK)


def test_state_so_large_that_it_might_not_fit_back_stays_on_the_gpu(rig: Rig) -> None:
    rig.take()
    kernel = rig.program(size=1500 * MIB)
    error, _ = rig.park(kernel)
    assert error is not None
    assert error.reason == "does_not_fit"
    assert kernel.do("kept()")


def test_what_a_stranger_takes_while_a_state_leaves_makes_that_no_smaller(rig: Rig) -> None:
    rig.take()
    kernel, answers = rig.program(), list[tuple[object, int]]()
    with rig.node.fault(Op.CHECKPOINT, 0, Effect.SLOW, seconds=0.3):
        rig.device.park(kernel.pid, lambda error, size: answers.append((error, size)))
        rig.wait(lambda: rig.node.calls(Op.LOCK))
        rig.pass_time(0.1)
        rig.node.set_gpu(0, foreign=200 * MIB)
        rig.until(lambda: answers)
    assert answers == [(None, STATE)]


def test_a_restore_that_may_not_fit_is_never_tried(rig: Rig) -> None:
    rig.device = rig.make(room_seconds=0.1)
    rig.take()
    kernel = rig.program()
    rig.park(kernel)
    rig.node.set_gpu(0, foreign=1500 * MIB)
    error, _ = rig.resume(kernel)
    assert error is not None
    assert (error.reason, error.fatal) == ("device_full", False)
    assert not rig.node.calls(Op.RESTORE)
    rig.node.set_gpu(0, foreign=0)
    assert rig.resume(kernel)[0] is None
    assert kernel.do("kept()")


def test_a_restore_waits_a_moment_for_memory_of_whoever_was_there_before(rig: Rig) -> None:
    rig.take()
    kernel, before = rig.program(), rig.program(size=600 * MIB, **STRANGER)
    assert rig.park(kernel)[0] is None
    stays = rig.program(size=500 * MIB, **STRANGER)
    answers: list[object] = []
    rig.device.resume(kernel.pid, rig.node.uuids[:1], lambda error, size: answers.append(error))
    rig.pass_time(0.1)
    assert not answers
    before.end()
    rig.until(lambda: answers)
    assert answers == [None]
    assert stays.do("kept()")


def test_gpu_work_that_does_not_end_keeps_the_gpu(rig: Rig) -> None:
    rig.device = rig.make(lock_seconds=0.05)
    rig.take()
    kernel = rig.program()
    kernel.do("device.work(60000)")
    error, _ = rig.park(kernel)
    assert error is not None
    assert error.reason == "gpu_busy"
    assert rig.node.state(kernel.pid) is State.RUNNING


def test_managed_memory_keeps_the_gpu_for_life_and_says_why(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    kernel.do("device.call('cuMemAllocManaged', device.ctypes.byref(device._u64()), device._size(4096), 1)")
    error, _ = rig.park(kernel)
    assert error is not None
    assert error.reason == "not_supported"
    assert kernel.do("kept()")
    rung, reason = rig.device.probe()
    assert (rung, "managed" in reason) == (Rung.EXCLUSIVE, True)
    assert rig.park(kernel)[0].reason == "not_supported"  # type: ignore[union-attr]
    rig.device.forget(kernel.pid, lambda: None)
    assert rig.device.probe()[0] is not Rung.EXCLUSIVE


def test_memory_of_a_process_that_can_not_be_found_keeps_the_gpu(rig: Rig) -> None:
    rig.node.set(host_pids=1)
    rig.take()
    kernel = rig.program()
    hidden = rig.program(**STRANGER)
    error, _ = rig.park(kernel)
    assert error is not None
    assert error.reason == "still_in_use"
    assert kernel.do("kept()")
    hidden.end()
    assert rig.park(kernel)[0] is None


def test_a_restore_without_persistence_mode_works_from_an_initialised_helper_that_holds_no_context(rig: Rig) -> None:
    rig.node.set_gpu(0, persistent=0)
    rig.take()
    kernel = rig.program()
    rig.park(kernel)
    assert rig.node.used() == 0
    assert rig.resume(kernel)[0] is None


def test_a_helper_in_which_the_driver_failed_to_start_is_replaced(rig: Rig) -> None:
    rig.node.set_gpu(0, persistent=0)
    rig.take()
    kernel = rig.program()
    with rig.node.fault(Op.INIT, 100):
        error, _ = rig.park(kernel)
        assert error is not None
        assert error.reason == "no_device"
    assert rig.park(kernel)[0] is None


def test_a_look_that_comes_late_has_seen_the_kernels_own_memory_and_counts_for_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pod.cuda.device.LOOK_SECONDS", 0.05)
    helper = rig.device._helper
    assert helper is not None
    os.kill(helper.pid, signal.SIGSTOP)
    rig.take()
    kernel = rig.program()
    hidden = rig.program(size=300 * MIB)  # which the library will list as nobody's
    rig.node.set(host_pids=1)
    os.kill(helper.pid, signal.SIGCONT)
    rig.until(lambda: not helper.busy)
    assert rig.device._floor == {}
    assert rig.park(kernel) == (None, 2 * STATE)
    assert hidden.pid in {pid for pid, _ in rig.device._parked.processes}  # type: ignore[union-attr]


def test_a_partition_is_kept_for_life_beside_gpus_that_are_whole(rig: Rig) -> None:
    rig.take("MIG-0c1e3b7a-9d0c-5a3e-8a56-2f6d8f1f0a11")
    rung, reason = rig.device.probe()
    assert (rung, "MIG" in reason) == (Rung.EXCLUSIVE, True)


def test_a_gpu_that_came_to_be_shared_through_mps_is_kept_and_the_reason_says_so(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    rig.node.set_gpu(0, mps=1)
    error, _ = rig.park(kernel)
    assert error is not None
    assert (error.reason, "MPS" in str(error)) == ("not_supported", True)
    assert not rig.node.calls(Op.LOCK)
    assert (rig.device.probe()[0], "MPS" in rig.device.probe()[1]) == (Rung.EXCLUSIVE, True)


@pytest.mark.parametrize("known_as", ["uuid", "number"])
@pytest.mark.parametrize("obstacle", ["mig", "virtual", "mps"])
def test_a_gpu_that_can_not_be_checkpointed_is_kept_for_life(rig: Rig, obstacle: str, known_as: str) -> None:
    rig.node.add_gpu(GIB)
    rig.node.set_gpu(0, **{obstacle: 2 if obstacle == "virtual" else 1})
    rig.device = rig.make()
    rig.until(lambda: rig.device.known)
    assert rig.device.probe()[0] is Rung.ANYWHERE, "of the other one"
    rig.take(*(["0"] if known_as == "number" else []))
    assert rig.device.probe()[0] is Rung.EXCLUSIVE
    error, _ = rig.park(rig.program())
    assert error is not None
    assert error.reason == "exclusive"
    assert not rig.node.calls(Op.LOCK)


@pytest.mark.parametrize("rig", [{"gpus": 4, "driver": "575.57.08", "cuda": 12090}], indirect=True)
def test_several_gpus_under_an_older_driver_are_kept_and_one_comes_back_where_it_was(rig: Rig) -> None:
    assert rig.device.probe()[0] is Rung.SAME_GPU
    rig.take()
    kernel = rig.program(CUDA_VISIBLE_DEVICES=rig.node.uuids[0])
    assert rig.park(kernel)[0] is None
    error, _ = rig.resume(kernel, rig.node.uuids[1])
    assert error is not None
    assert (error.reason, error.fatal) == ("wrong_gpu", False)
    assert rig.resume(kernel)[0] is None
    rig.device = rig.make(count=2)
    rig.take(*rig.node.uuids[:2])
    error, _ = rig.park(kernel)
    assert error is not None
    assert error.reason == "not_supported"
    assert "2 GPUs" in str(error)


@pytest.mark.parametrize("rig", [{"gpus": 4}], indirect=True)
def test_several_gpus_are_left_and_taken_together_pair_by_pair(rig: Rig) -> None:
    a, b, c, d = rig.node.uuids
    rig.device = rig.make(count=2)
    rig.take(a, b, visible=(a, b, c, d))
    kernel = rig.program()
    kernel.do(f"device.start(1); n = device.Memory({100 * MIB}); n.write(b'two')")
    assert rig.park(kernel) == (None, STATE + 164 * MIB)
    assert rig.resume(kernel, c, d)[0] is None
    assert [rig.node.used(gpu) for gpu in range(4)] == [0, 0, STATE, 164 * MIB]
    assert kernel.do("[kept(), n.read(3).decode(), device.device_uuid(0), device.device_uuid(1)]") == [True, "two", c, d]
    assert rig.park(kernel)[0] is None
    assert rig.resume(kernel, d, c)[0] is None
    assert kernel.do("[kept(), n.read(3).decode(), device.device_uuid(0)]") == [True, "two", c]


@pytest.mark.parametrize("cycles", [20])
def test_many_turns_lose_nothing(rig: Rig, cycles: int) -> None:
    rig.take()
    kernel = rig.program()
    for _ in range(cycles):
        assert rig.park(kernel)[0] is None
        assert rig.resume(kernel)[0] is None
    assert kernel.do("kept()")
    assert rig.node.used() == STATE
