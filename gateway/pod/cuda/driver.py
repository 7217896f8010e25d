"""NVIDIA's checkpoint calls by their ABI: numbers and layouts from cuda.h, nothing else.

Runs in the helper process alone: a call can take minutes, can't be interrupted, and may never come back. It must never make a
context: ``cuInit`` is the most.
"""

from __future__ import annotations

import ctypes
import os
import uuid
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, c_char, c_int, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Optional

LIBRARY = "libcuda.so.1"
REMAP_VERSION = 13000  # of cuDriverGetVersion: from here on a restore takes a map of GPUs

# CUprocessState
RUNNING, LOCKED, CHECKPOINTED, FAILED, CHECKPOINTING, RESTORING = range(6)

# CUresult, as far as these calls are known to answer them
INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE = 1, 2, 3, 100
OPERATING_SYSTEM, ILLEGAL_STATE, NOT_READY, NOT_PERMITTED, NOT_SUPPORTED = 304, 401, 600, 800, 801
MEANINGS = {
    INVALID_VALUE: "invalid value",
    OUT_OF_MEMORY: "out of memory",
    NOT_INITIALIZED: "the process has no CUDA",
    NO_DEVICE: "no CUDA device is visible",
    OPERATING_SYSTEM: "the process can't be reached",
    ILLEGAL_STATE: "not in the state for it",
    NOT_READY: "GPU work did not end in time",
    NOT_PERMITTED: "not permitted; NVIDIA's persistence mode may be off (nvidia-smi -pm 1)",
    NOT_SUPPORTED: "not supported; managed (UVM) or shared (IPC, NCCL) GPU memory can't be checkpointed",
}


class DriverError(Exception):
    """A call answered something else than success."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} answered {code} ({MEANINGS.get(code, 'see CUresult in cuda.h')})")
        self.call, self.code = call, code


class LockArgs(Structure):
    _fields_ = [("timeoutMs", c_uint), ("reserved0", c_uint), ("reserved1", c_uint64 * 7)]


class Uuid(Structure):
    _fields_ = [("bytes", c_ubyte * 16)]


class GpuPair(Structure):
    _fields_ = [("oldUuid", Uuid), ("newUuid", Uuid)]


class RestoreArgs(Structure):
    """64 bytes, as every args struct in every release; what a driver doesn't know has to be zero."""

    _fields_ = [("gpuPairs", POINTER(GpuPair)), ("gpuPairsCount", c_uint), ("padding0", c_uint), ("customStorageInfo_out", c_void_p),
                ("reserved", c_char * 40)]  # fmt: skip


def present(env: Mapping[str, str]) -> bool:
    """Whether a driver's library is installed here, without loading it."""
    for folder in env.get("LD_LIBRARY_PATH", "").split(":"):
        if folder and os.path.exists(os.path.join(folder, LIBRARY)):
            return True
    try:
        with open("/etc/ld.so.cache", "rb") as cache:
            return LIBRARY.encode() in cache.read()
    except OSError:
        return False


class Cuda:
    """The driver's library in this process."""

    def __init__(self) -> None:
        """Raises ``OSError`` where there is no driver."""
        self._library = ctypes.CDLL(LIBRARY)  # releases the interpreter's lock in calls
        self.checkpoints = hasattr(self._library, "cuCheckpointProcessLock")
        if not self.checkpoints:
            return
        for name, arguments in (
            ("GetState", (c_int, POINTER(c_int))),
            ("GetRestoreThreadId", (c_int, POINTER(c_int))),
            ("Lock", (c_int, POINTER(LockArgs))),
            ("Checkpoint", (c_int, c_void_p)),
            ("Restore", (c_int, POINTER(RestoreArgs))),
            ("Unlock", (c_int, c_void_p)),
        ):
            function = getattr(self._library, f"cuCheckpointProcess{name}")
            function.argtypes, function.restype = arguments, c_int

    def version(self) -> int:
        """As cuDriverGetVersion has it: 13000 for CUDA 13.0. 0 where it doesn't answer."""
        number = c_int()
        return 0 if self._library.cuDriverGetVersion(ctypes.byref(number)) else number.value

    def init(self) -> None:
        """Needed before a restore where persistence mode is off. May take seconds."""
        self._check("cuInit", self._library.cuInit(0))

    def state(self, pid: int) -> int:
        out = c_int(-1)
        self._call("GetState", pid, ctypes.byref(out))
        return out.value

    def restore_thread(self, pid: int) -> Optional[int]:
        """Only a process with a context has one: None for any other."""
        out = c_int()
        try:
            self._call("GetRestoreThreadId", pid, ctypes.byref(out))
        except DriverError as error:
            if error.code == NOT_INITIALIZED:
                return None
            raise
        return out.value

    def lock(self, pid: int, timeout: float) -> None:
        """New CUDA calls of ``pid`` wait from now on. Waits up to ``timeout`` seconds for GPU work under way, else NOT_READY."""
        self._call("Lock", pid, ctypes.byref(LockArgs(timeoutMs=max(1, int(timeout * 1000)))))

    def checkpoint(self, pid: int) -> None:
        self._call("Checkpoint", pid, None)

    def restore(self, pid: int, moves: Sequence[tuple[str, str]] = ()) -> None:
        """``moves``: (old, new) UUID of every GPU that the driver sees; empty: to where it was."""
        if not moves:
            self._call("Restore", pid, None)
            return
        pairs = (GpuPair * len(moves))(*(GpuPair(_uuid(old), _uuid(new)) for old, new in moves))
        self._call("Restore", pid, ctypes.byref(RestoreArgs(gpuPairs=pairs, gpuPairsCount=len(moves))))

    def unlock(self, pid: int) -> None:
        self._call("Unlock", pid, None)

    def _call(self, name: str, pid: int, argument: object) -> None:
        self._check(f"cuCheckpointProcess{name}", getattr(self._library, f"cuCheckpointProcess{name}")(pid, argument))

    @staticmethod
    def _check(call: str, code: int) -> None:
        if code:
            raise DriverError(call, code)


def _uuid(text: str) -> Uuid:
    return Uuid((c_ubyte * 16)(*uuid.UUID(text.replace("GPU-", "", 1)).bytes))
