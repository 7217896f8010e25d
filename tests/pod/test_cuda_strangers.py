"""Whom parking must never touch, and what it must wait for: the next kernel, kernels of a kernel, forked workers, the slowly dying."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gateway.pod.processes import alive

from ..doubles.cuda import MIB, Effect, Op, State
from .cuda_rig import STATE, Rig, needs_double

pytestmark = needs_double
TWO_THREADS = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); exit = ctypes.CDLL(None).syscall"


def ended(pid: int) -> bool:
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_a_helper_that_was_given_up_while_it_hung_never_touches_the_next_kernel(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    with rig.node.fault(Op.LOCK, 0, Effect.HANG, pid=kernel.pid) as fault:
        rig.device.park(kernel.pid, lambda error, size: None)
        rig.until(lambda: fault.fired)
        helper = rig.device._helper
        assert helper is not None
        kernel.end()
        rig.device.forget(kernel.pid, lambda: None)
        rig.take()
        following = rig.program()
    rig.wait(lambda: ended(helper.pid))
    assert not [call for call in rig.node.calls(Op.LOCK, Op.CHECKPOINT) if call.pid == following.pid]
    assert rig.node.state(following.pid) is State.RUNNING
    assert following.do("kept()")


@pytest.mark.parametrize("rig", [{"gpus": 2}], indirect=True)
def test_a_kernel_that_was_started_from_a_kernel_has_a_lease_of_its_own_and_stays_where_it_is(rig: Rig) -> None:
    a, b = rig.node.uuids
    rig.take(a)
    kernel = rig.program(CUDA_VISIBLE_DEVICES=a)
    code = "import device, time; device.start(); m = device.Memory(1 << 20); print(1, flush=True); time.sleep(60)"
    env = f"{{**os.environ, 'ELASTIC_SUPERVISOR': 'its own', 'CUDA_VISIBLE_DEVICES': {b!r}}}"
    kernel.do("import os, subprocess, sys")
    kernel.do(f"c = subprocess.Popen([sys.executable, '-c', {code!r}], stdout=-1, env={env})")
    kernel.do("c.stdout.readline() and None")
    inner = int(kernel.do("c.pid"))
    assert rig.park(kernel)[0] is None
    assert rig.node.state(inner) is State.RUNNING
    assert rig.node.used(1) == 65 * MIB
    assert rig.resume(kernel)[0] is None
    kernel.end()
    swept: list[bool] = []
    rig.device.forget(kernel.pid, lambda: swept.append(True))
    rig.until(lambda: swept)
    assert rig.node.state(inner) is State.RUNNING
    os.kill(inner, signal.SIGKILL)


def test_workers_that_were_forked_after_the_start_of_cuda_live_on(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    kernel.do("import multiprocessing; pool = multiprocessing.get_context('fork').Pool(2)")
    assert kernel.do("pool.map(abs, [-1, -2])") == [1, 2]
    assert rig.park(kernel) == (None, STATE)
    assert rig.node.used() == 0
    assert kernel.do("pool.map(abs, [-3, -4])") == [3, 4]
    assert rig.resume(kernel)[0] is None
    assert kernel.do("[kept(), pool.map(abs, [-5])]") == [True, [5]]
    kernel.do("pool.terminate()")


def test_a_gpu_is_let_go_only_when_the_last_thread_of_what_was_there_has_ended(rig: Rig) -> None:
    rig.take()
    kernel = rig.program()
    kernel.do(TWO_THREADS)
    kernel.begin(f"exit({60 if os.uname().machine == 'x86_64' else 93}, 0)")  # of its first thread alone
    rig.wait(lambda: ended(kernel.pid))
    assert rig.node.used() == STATE
    seen: list[int] = []
    rig.device.forget(kernel.pid, lambda: seen.append(rig.node.used()))
    rig.until(lambda: seen)
    assert seen == [0]
    assert not alive((kernel.pid, 0))
