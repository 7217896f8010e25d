"""The CUDA double is faithful: NVIDIA's own wheels run against it unmodified, and it behaves as the real driver is reported to."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..doubles.cuda import GIB, MIB, MISSING, Effect, Node, Op, State
from ..doubles.cuda.program import Program

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
Make = Callable[..., Program]


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    node = Node(tmp_path, **getattr(request, "param", {}))
    yield node
    node.close()


@pytest.fixture
def program(node: Node) -> Iterator[Make]:
    made: list[Program] = []

    def make(start: bool = True, **env: str) -> Program:
        made.append(Program(node, start, **env))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def caller(program: Make) -> Program:
    """A process that makes checkpoint calls through plain ctypes."""
    caller = program(start=False)
    caller.do("import device, ctypes; c = device._cuda; c.cuInit(0)")
    return caller


def ask(caller: Program, call: str, pid: int) -> int:
    return caller.do(f"c.cuCheckpointProcess{call}({pid}, None)")


@pytest.fixture
def target(program: Make) -> Program:
    target = program()
    target.do("m = device.Memory(1 << 30); m.write(b'kept', 12345)")
    return target


def test_device_memory_leaves_the_card_at_checkpoint_and_comes_back_unharmed(node: Node, caller: Program, target: Program) -> None:
    assert node.used() == GIB + 256 * MIB
    assert [ask(caller, call, target.pid) for call in ("Lock", "Checkpoint")] == [0, 0]
    assert node.used() == 0
    assert node.state(target.pid) is State.CHECKPOINTED
    assert ask(caller, "Restore", target.pid) == 0
    assert node.state(target.pid) is State.LOCKED
    assert ask(caller, "Unlock", target.pid) == 0
    assert node.used() == GIB + 256 * MIB
    assert target.do("m.read(4, 12345).decode()") == "kept"


def test_calls_of_a_locked_process_wait_whatever_signal_comes(caller: Program, target: Program) -> None:
    ask(caller, "Lock", target.pid)
    target.begin("m.read(4, 12345).decode()")
    assert not target.answered(0.1)
    os.kill(target.pid, signal.SIGINT)
    assert not target.answered(0.1)
    ask(caller, "Unlock", target.pid)
    assert target.answered(5)


def test_each_call_needs_its_state(caller: Program, target: Program) -> None:
    assert ask(caller, "Checkpoint", target.pid) == 401
    assert ask(caller, "Unlock", target.pid) == 401
    ask(caller, "Lock", target.pid)
    assert ask(caller, "Lock", target.pid) == 401
    assert ask(caller, "Restore", target.pid) == 401


def test_a_lock_waits_for_submitted_work_and_times_out_into_running(node: Node, caller: Program, target: Program) -> None:
    target.do("device.work(300)")
    caller.do("within_20_ms = (ctypes.c_uint64 * 8)(20)")
    assert caller.do(f"c.cuCheckpointProcessLock({target.pid}, within_20_ms)") == 600
    assert node.state(target.pid) is State.RUNNING
    assert ask(caller, "Lock", target.pid) == 0


def test_what_has_no_context_or_no_cuda_or_is_gone_is_told_apart(caller: Program, program: Make) -> None:
    plain, initialised, gone = program(start=False), program(start=False), program()
    initialised.do("import device; device.call('cuInit', 0)")
    gone.end()
    caller.do("i = ctypes.c_int()")
    state = [caller.do(f"c.cuCheckpointProcessGetState({p.pid}, ctypes.byref(i))") for p in (plain, initialised, gone)]
    thread = [caller.do(f"c.cuCheckpointProcessGetRestoreThreadId({p.pid}, ctypes.byref(i))") for p in (plain, initialised, gone)]
    assert state == [3, 0, 304]
    assert thread == [3, 3, 304]


def test_a_restore_without_room_poisons_for_good(node: Node, caller: Program, target: Program) -> None:
    ask(caller, "Lock", target.pid), ask(caller, "Checkpoint", target.pid)
    node.set_gpu(0, foreign=7 * GIB)
    assert ask(caller, "Restore", target.pid) == 2
    node.set_gpu(0, foreign=0)
    assert [ask(caller, call, target.pid) for call in ("Restore", "Unlock")] == [304, 401]
    assert node.poisoned(target.pid)


def test_managed_memory_can_not_be_checkpointed(node: Node, caller: Program, target: Program) -> None:
    target.do("device.call('cuMemAllocManaged', device.ctypes.byref(device._u64()), device._size(4096), 1)")
    ask(caller, "Lock", target.pid)
    assert ask(caller, "Checkpoint", target.pid) == 801
    assert node.state(target.pid) is State.LOCKED


def test_a_restore_needs_persistence_or_an_initialised_caller(node: Node, program: Make, target: Program, caller: Program) -> None:
    node.set_gpu(0, persistent=0)
    bare = program(start=False)
    bare.do("import device; c = device._cuda")
    ask(bare, "Lock", target.pid), ask(bare, "Checkpoint", target.pid)
    assert ask(bare, "Restore", target.pid) == 800
    assert ask(caller, "Restore", target.pid) == 0


def test_a_child_that_was_forked_after_the_start_has_no_cuda(caller: Program, target: Program) -> None:
    target.do("import os, multiprocessing")
    code = target.do("multiprocessing.get_context('fork').Pool(1).apply(eval, ('__import__(\"device\")._cuda.cuCtxSynchronize()',))")
    assert code == 3


def test_a_dead_process_leaves_an_empty_card(node: Node, target: Program) -> None:
    target.end()
    assert node.used() == 0
    assert not list(node.folder.glob(f"{node.path.name}.[0-9]*"))


def test_a_caller_that_dies_in_a_checkpoint_does_not_stop_it(node: Node, caller: Program, target: Program) -> None:
    node.set(seconds=0.3)
    ask(caller, "Lock", target.pid)
    caller.begin(f"c.cuCheckpointProcessCheckpoint({target.pid}, None)")
    while not node.calls(Op.LOCK):
        time.sleep(0.005)
    assert not caller.answered(0.1)
    caller.end()
    while node.state(target.pid) is State.LOCKED:
        time.sleep(0.01)
    assert node.state(target.pid) is State.CHECKPOINTED
    assert node.used() == 0


def test_faults_strike_where_they_are_told_to(node: Node, caller: Program, target: Program) -> None:
    with node.fault(Op.LOCK, 304, skip=1) as fault:
        assert [ask(caller, "Lock", target.pid), ask(caller, "Unlock", target.pid), ask(caller, "Lock", target.pid)] == [0, 0, 304]
        assert fault.fired == 1
        assert node.state(target.pid) is State.RUNNING
    with node.fault(Op.LOCK, 304, Effect.DONE):
        assert ask(caller, "Lock", target.pid) == 304
        assert node.state(target.pid) is State.LOCKED
    with node.fault(Op.CHECKPOINT, 2, Effect.FAIL):
        assert ask(caller, "Checkpoint", target.pid) == 2
        assert node.state(target.pid) is State.FAILED
    with node.fault(Op.LOCK, 0, Effect.KILL):
        ask(caller, "Lock", target.pid)
    assert node.state(target.pid) is None


def test_latency_is_what_was_set(node: Node, caller: Program, target: Program) -> None:
    node.set(seconds=0.05, seconds_per_gb=0.05)
    ask(caller, "Lock", target.pid), ask(caller, "Checkpoint", target.pid)
    (call,) = node.calls(Op.CHECKPOINT)
    assert call.took >= 0.1


# NVIDIA's own wheels


needs_wheels = pytest.mark.skipif(
    not (importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.core") and importlib.util.find_spec("cuda.bindings")),
    reason="NVIDIA's wheels are not here: pip install cuda-bindings cuda-core",
)


@needs_wheels
def test_the_unmodified_cuda_core_wheel_checkpoints_through_the_double(node: Node, program: Make, target: Program) -> None:
    own = program(start=False)
    own.do("from cuda.core import checkpoint")
    own.do(f"p = checkpoint.Process({target.pid})")
    assert own.do("[p.state, p.lock(timeout_ms=500), p.state, p.checkpoint(), p.state]")[::2] == ["running", "locked", "checkpointed"]
    assert node.used() == 0
    assert own.do("p.restore_thread_id") > target.pid
    assert own.do("[p.restore(), p.state, p.unlock(), p.state]")[1::2] == ["locked", "running"]
    assert target.do("m.read(4, 12345).decode()") == "kept"


@needs_wheels
@pytest.mark.parametrize("node", [{"gpus": 3}], indirect=True)
def test_cuda_core_moves_a_process_with_a_map_of_every_card_and_reads_the_new_one(node: Node, program: Make) -> None:
    a, b, c = (uuid.removeprefix("GPU-") for uuid in node.uuids)
    user, own = program(start=False), program(start=False)
    user.do(
        "from cuda.core import Device; d = Device(0); d.set_current(); s = d.default_stream; m = d.allocate(1 << 20, stream=s); s.sync()"
    )
    assert user.do("d.uuid") == a
    assert user.do("m.size") == 1 << 20
    own.do(f"from cuda.core import checkpoint; p = checkpoint.Process({user.pid}); p.lock(); p.checkpoint()")
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):
        own.do(f"p.restore({{'{a}': '{b}', '{b}': '{a}'}})")
    own.do(f"p.restore({{'{a}': '{b}', '{b}': '{a}', '{c}': '{c}'}}); p.unlock()")
    assert node.used(1) > MIB
    assert node.used(0) == 0
    user.do("from cuda.bindings import driver as cu")
    assert user.do("bytes(cu.cuDeviceGetUuid(0)[1].bytes).hex()") == b.replace("-", "")


@needs_wheels
@pytest.mark.parametrize("node", [{"gpus": 2}], indirect=True)
def test_a_process_that_sees_only_some_cards_can_not_be_moved(node: Node, program: Make, caller: Program) -> None:
    a, b = (uuid.removeprefix("GPU-") for uuid in node.uuids)
    user, own = program(CUDA_VISIBLE_DEVICES=f"GPU-{b}"), program(start=False)
    assert user.do("[device.count(), device.device_uuid()]") == [1, f"GPU-{b}"]
    own.do(f"from cuda.core import checkpoint; p = checkpoint.Process({user.pid}); p.lock(); p.checkpoint()")
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):
        own.do(f"p.restore({{'{b}': '{a}', '{a}': '{b}'}})")
    own.do(f"p.restore({{'{b}': '{b}', '{a}': '{a}'}}); p.unlock()")
    assert user.do("device.device_uuid()") == f"GPU-{b}"


@needs_wheels
@pytest.mark.parametrize("node", [{"driver": "550.54.15", "cuda": 12040}], indirect=True)
def test_an_old_driver_has_no_checkpoint_calls(program: Make) -> None:
    own = program(start=False)
    own.do("import device")
    assert not own.do("hasattr(device._cuda, 'cuCheckpointProcessLock')")
    with pytest.raises(RuntimeError, match="not supported by the installed NVIDIA driver"):
        own.do("from cuda.core import checkpoint; checkpoint.Process(1).state")


@pytest.mark.parametrize("node", [{"gpus": 2}], indirect=True)
def test_the_management_library_sees_the_same_machine(node: Node, program: Make, target: Program, caller: Program) -> None:
    admin = program(start=False)
    admin.do("import pynvml as n; n.nvmlInit(); h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]")
    assert admin.do("[n.nvmlDeviceGetUUID(x) for x in h]") == node.uuids
    assert admin.do("n.nvmlDeviceGetMemoryInfo(h[0]).used") == node.used(0) > 0
    assert admin.do("[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h[0])]") == [target.pid]
    assert admin.do("[n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion()]") == ["580.65.06", 13000]
    target.do("device.work(100)")
    assert admin.do("[s.pid for s in n.nvmlDeviceGetProcessUtilization(h[0], 0)]") == [target.pid]
    ask(caller, "Lock", target.pid), ask(caller, "Checkpoint", target.pid)
    assert admin.do("[n.nvmlDeviceGetMemoryInfo(h[0]).used, len(n.nvmlDeviceGetComputeRunningProcesses(h[0]))]") == [0, 0]
    node.set_gpu(1, mig=1, virtual=2, mps=1)
    assert admin.do("[n.nvmlDeviceGetMigMode(h[1])[0], n.nvmlDeviceGetVirtualizationMode(h[1])]") == [1, 2]
    assert admin.do("len(n.nvmlDeviceGetMPSComputeRunningProcesses(h[1]))") == 1
