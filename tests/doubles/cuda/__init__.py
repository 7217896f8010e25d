"""A machine with GPUs that isn't there: NVIDIA's libcuda and libnvidia-ml as doubles, built here, and the hand that works them.

Processes that are started with ``Node.env`` find the doubles under the real libraries' names. This process must never load those
two itself, as it would then have a driver for good: it works the machine through a third library.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
GIB, MIB = 1 << 30, 1 << 20
COMPILER = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
MISSING = "" if COMPILER else "the CUDA double needs a C compiler: install gcc"
_LIBRARIES = {
    "libcuda.so.1": ("node.c", "driver.c", "checkpoint.c"),
    "old/libcuda.so.1": ("-DOLD", "node.c", "driver.c", "checkpoint.c"),
    "libnvidia-ml.so.1": ("node.c", "nvml.c"),
    "control.so": ("node.c", "control.c"),
}


class Op(IntEnum):
    """A call, where a fault is to strike."""

    INIT, STATE, THREAD, LOCK, CHECKPOINT, RESTORE, UNLOCK, ALLOCATE, MEMORY = range(9)


class Effect(IntEnum):
    """What a fault does beside answering its code (see node.h)."""

    ANSWER, FAIL, HANG, KILL, SLOW, POISON, DONE, VALUE = range(8)


class State(IntEnum):
    RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)


@dataclass(frozen=True)
class Call:
    """One checkpoint call that was made: what it answered, when it began and how long it took (seconds, monotonic)."""

    op: Op
    pid: int
    code: int
    began: float
    took: float


class _Record(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int), ("pid", ctypes.c_int), ("code", ctypes.c_int), ("began", ctypes.c_double), ("took", ctypes.c_double)]


@cache
def build() -> Path:
    """The folder of the libraries, compiled once in a test run. Raises ``CalledProcessError`` with the compiler's words."""
    folder = Path(tempfile.mkdtemp(prefix="double-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, what in _LIBRARIES.items():
        out = folder / name
        out.parent.mkdir(exist_ok=True)
        subprocess.run(
            [str(COMPILER), "-shared", "-fPIC", "-pthread", f"-Wl,-soname,{out.name}", "-o", str(out), *what, "-ldl"],
            check=True, cwd=HERE,
        )  # fmt: skip
    return folder


class Node:
    """One machine. Its state is a file in ``folder``; ``close`` takes it away."""

    def __init__(
        self, folder: Path, gpus: int = 1, memory: int = 8 * GIB, driver: str = "580.65.06", cuda: int = 13000, chip: str = "GH100",
        context: int = 256 * MIB, seconds: float = 0.0, seconds_per_gb: float = 0.0,
    ) -> None:  # fmt: skip
        libraries = build()
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / f"control-{uuid.uuid4().hex[:8]}.so"  # a library of its own for each machine: it has one machine's file mapped
        shutil.copy(libraries / "control.so", copy)
        self._control = ctypes.CDLL(str(copy))
        copy.unlink()
        self._control.control_used.restype = ctypes.c_uint64
        self._control.control_records.restype = ctypes.c_uint64
        self.path = folder / f"node-{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self._libraries = folder / f"{self.path.name}.lib"
        self._libraries.mkdir()
        (self._libraries / "node").write_text(str(self.path))
        for name, of in (("libcuda.so.1", libraries if cuda >= 12080 else libraries / "old"), ("libnvidia-ml.so.1", libraries)):
            (self._libraries / name).symlink_to(of / name)
        if self._control.control_create(str(self.path).encode(), driver.encode(), cuda):
            raise OSError(f"{self.path} can't be made")
        self.uuids: list[str] = []
        for _ in range(gpus):
            self.add_gpu(memory, chip)
        self.set(context_bytes=context, seconds=seconds, seconds_per_gb=seconds_per_gb)

    def add_gpu(self, memory: int, chip: str = "GH100", name: str = "NVIDIA Double") -> str:
        """One more card; returns its UUID."""
        raw = uuid.uuid4()
        text = f"GPU-{raw}"
        total = ctypes.c_uint64(memory)
        self._control.control_add_gpu(text.encode(), raw.bytes, name.encode(), chip.encode(), total)
        self.uuids.append(text)
        return text

    @property
    def env(self) -> dict[str, str]:
        """What a process's environment needs for the doubles to be its driver."""
        paths = [str(self._libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}

    def set(self, **values: float) -> None:
        """``seconds`` and ``seconds_per_gb`` of a checkpoint or restore, ``init_seconds``, ``context_bytes``, ``residue_bytes`` (that
        stay after a checkpoint), ``migrates`` (0: a map is accepted and ignored), ``desync`` (a caller that dies in a call leaves the
        target FAILED), ``host_pids`` (the management library speaks of other process ids, as in a container)."""
        for name, value in values.items():
            if self._control.control_set(name.encode(), ctypes.c_double(value)):
                raise KeyError(name)

    def set_gpu(self, gpu: int, **values: int) -> None:
        """``foreign`` (bytes that somebody outside uses), ``mig``, ``virtual``, ``mps``, ``persistent``."""
        for name, value in values.items():
            if self._control.control_set_gpu(gpu, name.encode(), ctypes.c_uint64(value)):
                raise KeyError(name)

    @contextmanager
    def fault(
        self, op: Op, code: int = 0, effect: Effect = Effect.ANSWER, *, pid: int = 0, skip: int = 0, times: int = 1, value: int = 0,
        seconds: float = 0.0,
    ) -> Iterator[Fault]:  # fmt: skip
        """The next ``times`` calls (-1: all; of the process ``pid``, 0: any; after ``skip`` good ones) go wrong, each after so many
        ``seconds``, until the block ends."""
        number = self._control.control_fault(op, pid, skip, times, code, effect, value, ctypes.c_double(seconds))
        fault = Fault(self._control, number)
        try:
            yield fault
        finally:
            fault.lift()

    def used(self, gpu: int = 0) -> int:
        """Bytes in use on a card."""
        return int(self._control.control_used(gpu))

    def state(self, pid: int) -> State | None:
        """None: it has no CUDA state, or is no more."""
        value = self._control.control_state(pid)
        return None if value < 0 else State(value % 16)

    def poisoned(self, pid: int) -> bool:
        return self._control.control_state(pid) >= 16

    def calls(self, *ops: Op, since: int = 0) -> list[Call]:
        """The checkpoint calls made so far, of these kinds (none named: all)."""
        most = 8192
        records = (_Record * most)()
        count = self._control.control_records(ctypes.c_uint64(since), records, ctypes.c_uint64(most))
        return [Call(Op(r.op), r.pid, r.code, r.began, r.took) for r in records[:count] if not ops or r.op in ops]

    def close(self) -> None:
        shutil.rmtree(self._libraries)
        for path in self.folder.glob(f"{self.path.name}*"):
            path.unlink()


class Fault:
    """One arranged misfortune. ``fired``: how often it has struck."""

    def __init__(self, control: ctypes.CDLL, number: int) -> None:
        self._control, self._number, self._fired = control, number, -1

    @property
    def fired(self) -> int:
        return self._fired if self._fired >= 0 else int(self._control.control_fired(self._number))

    def lift(self) -> None:
        """It strikes no more; a call that hangs goes on."""
        if self._fired < 0:
            self._fired = int(self._control.control_lift(self._number))
