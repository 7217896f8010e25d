"""Real kernels with device memory, under real supervisors, on the double's machine: parked, resumed, killed, and unlucky."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from gateway.protocol.model import Phase

from ..doubles.cuda import GIB, MIB, MISSING, Effect, Node, Op, State
from .cuda_notebook import CPU, GPU, STATE, Notebook
from .supervised import BASH

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.mark.parametrize("node", [{"gpus": 2}], indirect=True)
@pytest.mark.parametrize(("units", "rung"), [(["node/gpu/0", "node/gpu/1"], "anywhere"), (["node/gpu/0"], "same-gpu")])
def test_a_kernel_that_may_see_all_gpus_does_also_where_others_know_them_by_other_names(node: Node, units: list[str], rung: str) -> None:
    first, second = node.uuids
    other = Notebook()
    try:
        msg_id = other.client.execute(GPU + "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        other.dialer.until(lambda s: s.lease.wanted and s.lease.rung)
        other.dialer.order("grant", gpus=units[:1], visible=units, devices=[second])
        assert other.collect(msg_id) == (f"{second},{first}" if len(units) > 1 else second)
        assert other.dialer.until(lambda s: s.lease.phase == Phase.HOLDING).lease.rung == rung
    finally:
        other.supervised.end()


def test_work_that_goes_on_after_its_cell_is_told_to_who_asks(node: Node, open_: Callable[..., Notebook]) -> None:
    notebook = open_()
    assert not notebook.dialer.call("uses", seconds=5.0)["used"]
    begin = "import device, threading, time; device.start(); on = True\n"
    thread = "def train():\n    while on: device.work(50); time.sleep(.02)\nthreading.Thread(target=train).start()"
    assert notebook.run(GPU + begin + thread, node.uuids[0]) == ""
    notebook.dialer.until(lambda s: s.lease.phase == Phase.HOLDING and not s.lease.executing)
    assert notebook.dialer.call("uses", seconds=0.3)["used"]
    notebook.run(CPU + "on = False; time.sleep(.5)")
    assert not notebook.dialer.call("uses", seconds=0.3)["used"]


def test_a_kernels_state_leaves_the_gpu_and_comes_back_with_its_next_gpu_cell(node: Node, notebook: Notebook) -> None:
    assert node.used() == STATE
    parked = notebook.park()
    assert (parked.lease.phase, parked.lease.answer, parked.lease.parked_bytes) == (Phase.PARKED, "done", STATE)
    assert parked.lease.home == node.uuids
    assert node.used() == 0
    assert notebook.run(CPU + "print(40 + 2)") == "42"
    assert notebook.run(GPU + "print(m.read(4, 12345))", node.uuids[0]) == "b'kept'"
    assert node.used() == STATE
    assert notebook.dialer.state.lease.rung == "anywhere"


@pytest.mark.parametrize("node", [{"memory": 1300 * MIB}], indirect=True)
def test_two_kernels_whose_state_does_not_fit_together_take_turns(node: Node, open_: Callable[..., Notebook]) -> None:
    size = 640 * MIB
    both = [open_(), open_()]
    for turn in range(5):
        for number, each in enumerate(both):
            begin = f"import device; device.start(); m = device.Memory({size}); m.write(bytes(8))\n" if not turn else ""
            add = f"n = int.from_bytes(m.read(8), 'big') + {number + 1}; m.write(n.to_bytes(8, 'big')); print(n)"
            assert each.run(GPU + begin + add, node.uuids[0]) == str((turn + 1) * (number + 1))
            assert each.park().lease.phase == Phase.PARKED
            assert node.used() == 0


@pytest.mark.parametrize("node", [{"gpus": 3}], indirect=True)
def test_before_its_first_gpu_cell_a_kernel_sees_exactly_what_it_leases_and_is_told_not_to_take_all(
    node: Node, open_: Callable[..., Notebook]
) -> None:
    notebook = open_()
    show = "import os, device; device.start(); print(device.count(), device.device_uuid(), os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'])"
    assert notebook.run(GPU + show, node.uuids[1]) == f"1 {node.uuids[1]} false"
    assert notebook.park().lease.rung == "same-gpu"
    free = open_(XLA_PYTHON_CLIENT_PREALLOCATE="mine")
    rest = tuple(uuid for uuid in node.uuids if uuid != node.uuids[2])
    assert free.run(GPU + show, node.uuids[2], visible=(node.uuids[2], *rest)) == f"3 {node.uuids[2]} mine"
    assert free.park().lease.rung == "anywhere"
    assert free.run(GPU + "print(device.device_uuid())", node.uuids[0]) == node.uuids[0]


@pytest.mark.parametrize("node", [{"gpus": 2}], indirect=True)
def test_a_kernel_of_another_language_sees_exactly_what_it_leases_too(node: Node, open_: Callable[..., Notebook]) -> None:
    notebook = open_(BASH, "bash")
    assert notebook.run("echo $CUDA_VISIBLE_DEVICES", node.uuids[1]) == node.uuids[1]
    python = f"{sys.executable} -c 'import device; device.start(); print(device.count(), device.device_uuid())'"
    assert notebook.run(python) == f"1 {node.uuids[1]}"


def test_a_kernel_that_has_touched_no_cuda_may_get_another_gpu_the_next_time(node: Node, open_: Callable[..., Notebook]) -> None:
    other = node.add_gpu(GIB)
    notebook = open_()
    notebook.run(GPU + "1", node.uuids[0])
    assert notebook.park().lease.parked_bytes == 0
    assert notebook.run(GPU + "import device; device.start(); print(device.device_uuid())", other) == other


def test_what_a_framework_has_cached_is_let_go_before_parking(notebook: Notebook) -> None:
    fake = "import sys, types; torch = sys.modules['torch'] = types.ModuleType('torch'); torch.cuda = types.SimpleNamespace("
    notebook.run(GPU + fake + "is_initialized=lambda: True, empty_cache=lambda: globals().__setitem__('emptied', True))")
    names = "print(sorted(name for name in globals() if name[0] != '_'))"
    before = notebook.run(CPU + names)
    assert notebook.park().lease.phase == Phase.PARKED
    assert notebook.run(CPU + "print(emptied)") == "True"
    assert notebook.run(CPU + "del emptied; " + names) == before


def test_a_thread_that_touches_cuda_while_parked_waits_and_goes_on(node: Node, notebook: Notebook) -> None:
    loop = """import threading, time
seen, go, done = [], threading.Event(), threading.Event()
def look():
    while not done.is_set():
        seen.append(m.read(4, 12345)); go.set(); time.sleep(0.001)
thread = threading.Thread(target=look, daemon=True); thread.start(); go.wait()"""
    notebook.run(GPU + loop)
    assert notebook.park().lease.phase == Phase.PARKED
    count = notebook.run(CPU + "print(len(seen))")
    assert notebook.run(CPU + "time.sleep(0.2); print(len(seen))") == count
    went_on = "n = len(seen); go.clear(); go.wait(10); done.set(); thread.join(10); print(len(seen) > n, set(seen), thread.is_alive())"
    assert notebook.run(GPU + went_on, node.uuids[0]) == "True {b'kept'} False"


def test_a_cell_that_touches_cuda_unforeseen_while_parked_asks_for_the_gpu_by_itself(node: Node, notebook: Notebook) -> None:
    assert notebook.park().lease.phase == Phase.PARKED
    msg_id = notebook.client.execute(CPU + "print(m.read(4, 12345))")
    notebook.dialer.until(lambda s: s.lease.wanted)
    notebook.dialer.order("grant", gpus=node.uuids, visible=node.uuids)
    assert notebook.collect(msg_id) == "b'kept'"
    assert notebook.park().lease.phase == Phase.PARKED


def test_a_kernel_that_is_killed_while_parked_frees_its_record(node: Node, notebook: Notebook) -> None:
    assert notebook.park().lease.parked_bytes
    os.kill(notebook.dialer.state.pid, signal.SIGKILL)
    state = notebook.dialer.until(lambda s: not s.alive)
    assert (state.lease.phase, state.lease.parked_bytes, state.lease.home) == (Phase.COLD, 0, [])
    assert notebook.dialer.call("respawn")["ok"]
    notebook.dialer.until(lambda s: s.ready)
    assert notebook.run(GPU + "import device; device.start(); print(device.count())", node.uuids[0]) == "1"
    assert notebook.park().lease.phase == Phase.PARKED


def test_what_a_dead_kernel_has_left_on_the_gpu_is_ended(node: Node, notebook: Notebook) -> None:
    code = "import device, time; device.start(); print(1, flush=True); time.sleep(60)"
    start = f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {code!r}], stdout=-1, start_new_session=True)"
    pid = int(notebook.run(GPU + start + "; c.stdout.readline(); print(c.pid)"))
    assert node.state(pid) is State.RUNNING
    os.kill(notebook.dialer.state.pid, signal.SIGKILL)
    notebook.dialer.until(lambda s: not s.alive)
    assert notebook.dialer.call("respawn")["ok"]
    notebook.dialer.until(lambda s: s.ready)
    assert notebook.run(GPU + "1", node.uuids[0]) == ""
    assert node.used() == 0


# what goes wrong is told, and true


def test_state_that_was_lost_while_parking_holds_the_gpu_until_the_kernel_ends_and_says_so(node: Node, notebook: Notebook) -> None:
    with node.fault(Op.CHECKPOINT, 304, Effect.FAIL):
        state = notebook.park()
    assert (state.lease.phase, state.lease.fatal, state.lease.gpus) == (Phase.HOLDING, True, node.uuids)
    assert "is lost" in notebook.run(GPU + "m.read(4)")
    assert notebook.run(CPU + "print('saved')") == "saved"
    assert not notebook.dialer.state.lease.wanted
    assert notebook.dialer.call("release")["reason"] == "state_lost"
    notebook.dialer.order("park", why="idle")
    assert notebook.answered().lease.answer == "state_lost"
    notebook.dialer.order("park", why="reclaimed")
    state = notebook.dialer.until(lambda s: not s.alive)
    assert "is lost" in state.reason
    assert (state.lease.gpus, state.lease.fatal, node.used()) == ([], False, 0)


@pytest.mark.case("G01")
def test_a_restore_that_ran_out_of_memory_gives_the_gpu_back_and_says_so(node: Node, notebook: Notebook) -> None:
    notebook.park()
    with node.fault(Op.RESTORE, 2, Effect.POISON):
        assert "is lost" in notebook.run(GPU + "m.read(4)", node.uuids[0])
    state = notebook.answered()
    assert (state.lease.phase, state.lease.fatal, state.lease.gpus) == (Phase.COLD, True, [])
    assert "is lost" in notebook.run(GPU + "m.read(4)")
    assert notebook.run(CPU + "print('saved')") == "saved"


@pytest.mark.case("G01")
def test_a_resume_that_failed_leaves_the_state_parked_and_the_next_cell_tries_again(node: Node, notebook: Notebook) -> None:
    notebook.park()
    with node.fault(Op.RESTORE, 999):
        assert notebook.run(GPU + "m.read(4)", node.uuids[0]).startswith("DeviceError: The kernel's GPU state could not be resumed")
    assert notebook.answered().lease.phase == Phase.PARKED
    assert notebook.run(GPU + "print(m.read(4, 12345))", node.uuids[0]) == "b'kept'"


def test_a_gpu_that_a_stranger_fills_is_no_place_to_resume(node: Node, notebook: Notebook) -> None:
    notebook.park()
    node.set_gpu(0, foreign=3 * GIB // 2)
    assert "without a lease" in notebook.run(GPU + "m.read(4)", node.uuids[0])
    assert notebook.answered().lease.phase == Phase.PARKED
    node.set_gpu(0, foreign=0)
    assert notebook.run(GPU + "print(m.read(4, 12345))", node.uuids[0]) == "b'kept'"


def test_a_helper_that_is_killed_while_parking_costs_an_attempt_and_nothing_else(node: Node, notebook: Notebook) -> None:
    notebook.dialer.until(lambda s: not s.lease.executing)
    with node.fault(Op.CHECKPOINT, 0, Effect.HANG) as fault:
        notebook.dialer.order("park")
        notebook.dialer.until(lambda s: s.lease.phase == Phase.PARKING)
        while not fault.fired:
            pass
        os.kill(notebook.helper, signal.SIGKILL)
        state = notebook.answered()
    assert (state.lease.phase, state.lease.answer) == (Phase.HOLDING, "helper_lost")
    assert notebook.run(GPU + "print(m.read(4, 12345))") == "b'kept'"
    assert notebook.park().lease.phase == Phase.PARKED


def test_a_driver_that_hangs_blocks_no_cpu_cell_and_no_question(node: Node, notebook: Notebook) -> None:
    notebook.dialer.until(lambda s: not s.lease.executing)
    with node.fault(Op.CHECKPOINT, 0, Effect.HANG) as fault:
        notebook.dialer.order("park")
        while not fault.fired:
            pass
        assert notebook.run(CPU + "print('fine')") == "fine"
        notebook.client.kernel_info()
        assert notebook.client.get_shell_msg(timeout=10)["msg_type"] == "kernel_info_reply"
        notebook.dialer.until(lambda s: s.lease.phase == Phase.PARKING)
    assert notebook.answered().lease.phase == Phase.PARKED


def test_a_kernel_whose_state_can_not_be_parked_keeps_its_gpu_and_says_why(notebook: Notebook) -> None:
    notebook.run(GPU + "device.call('cuMemAllocManaged', device.ctypes.byref(device._u64()), device._size(4096), 1)")
    lease = notebook.park().lease
    assert (lease.phase, lease.answer, lease.rung) == (Phase.HOLDING, "not_supported", "exclusive")
    assert "managed" in lease.rung_reason


@pytest.mark.parametrize("node", [{"driver": "550.54.15", "cuda": 12040}], indirect=True)
def test_under_an_old_driver_a_kernel_keeps_its_gpu_for_life(node: Node, open_: Callable[..., Notebook]) -> None:
    notebook = open_()
    notebook.run(GPU + "import device; device.start()", node.uuids[0])
    lease = notebook.park().lease
    assert (lease.phase, lease.answer, lease.rung) == (Phase.HOLDING, "exclusive", "exclusive")
    assert "575.57.08" in lease.answer_message


@pytest.mark.parametrize("node", [{"driver": "595.71.05", "cuda": 13020}], indirect=True)
def test_a_kernel_that_was_resumed_is_checkpointed_before_it_is_killed(node: Node, notebook: Notebook) -> None:
    notebook.park()
    notebook.run(GPU + "m.read(4)", node.uuids[0])
    notebook.dialer.until(lambda s: not s.lease.executing)
    checkpoints = len(node.calls(Op.CHECKPOINT))
    notebook.dialer.call("signal", signum=9)
    notebook.dialer.until(lambda s: not s.alive)
    assert len(node.calls(Op.CHECKPOINT)) == checkpoints + 1
    assert node.used() == 0
