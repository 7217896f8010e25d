"""The few questions to NVIDIA's management library that parking needs, by its ABI: a user's image need not have a package for it.

Runs in the helper process alone, as any of them can hang. It must never be asked for what CUDA alone knows.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 7, 13
NOT_AVAILABLE = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE, of 64 bits
VGPU = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU


class NvmlError(Exception):
    """A call answered something else than success: ``code``, in the library's words ``said``."""

    def __init__(self, call: str, code: int, said: str) -> None:
        super().__init__(f"{call} answered {code} ({said})")
        self.code = code


class _Memory(Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Process(Structure):
    _fields_ = [("pid", c_uint), ("usedGpuMemory", c_ulonglong), ("gpuInstanceId", c_uint), ("computeInstanceId", c_uint)]


class _Sample(Structure):
    _fields_ = [("pid", c_uint), ("timeStamp", c_ulonglong), *((name, c_uint) for name in ("smUtil", "memUtil", "encUtil", "decUtil"))]


class Nvml:
    """The library in this process, opened. GPUs are named by UUID, or as CUDA numbers them where all are leased at once."""

    def __init__(self) -> None:
        """Raises ``OSError`` where there is no driver, ``NvmlError`` where it doesn't answer."""
        self._library = ctypes.CDLL(LIBRARY)
        self._library.nvmlErrorString.restype = c_char_p
        self._call("nvmlInit_v2")
        self._handles: dict[str, c_void_p] = {}

    def driver(self) -> str:
        """The driver's version, as "580.65.06"."""
        text = create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", text, 96)
        return text.value.decode()

    def uuids(self) -> list[str]:
        """Every GPU that can be seen here."""
        count, found = c_uint(), []
        self._call("nvmlDeviceGetCount_v2", byref(count))
        for index in range(count.value):
            handle, text = c_void_p(), create_string_buffer(96)
            self._call("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
            self._call("nvmlDeviceGetUUID", handle, text, 96)
            found.append(text.value.decode())
            self._handles[found[-1]] = handle
        return found

    def memory(self, uuid: str) -> tuple[int, int]:
        """``(total, used)`` bytes."""
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._handle(uuid), byref(memory))
        return memory.total, memory.used

    def processes(self, uuid: str) -> dict[int, int]:
        """Process ids, as the host counts them, and the bytes that each has on the GPU."""
        room = 64
        while True:
            count, found = c_uint(room), (_Process * room)()
            try:
                self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._handle(uuid), byref(count), found)
            except NvmlError as error:
                if error.code != INSUFFICIENT_SIZE:
                    raise
                room = 2 * max(room, count.value)
                continue
            return {each.pid: each.usedGpuMemory for each in found[: count.value]}

    def busy(self, uuid: str, since: int) -> set[int]:
        """Process ids, as the host counts them, that have kept the GPU's cores busy since then (microseconds of the time of day); empty
        where the driver doesn't tell, as for partitions."""
        room = 64
        while True:
            count, found = c_uint(room), (_Sample * room)()
            try:
                self._call("nvmlDeviceGetProcessUtilization", self._handle(uuid), found, byref(count), c_ulonglong(since))
            except NvmlError as error:
                if error.code != INSUFFICIENT_SIZE:  # no sample since then, or a question that it doesn't know here
                    return set()
                room = 2 * max(room, count.value)
                continue
            samples = found[: count.value]
            return {each.pid for each in samples if each.timeStamp >= since and (each.smUtil or each.encUtil or each.decUtil)}

    def mig(self, uuid: str) -> bool:
        current, pending = c_uint(), c_uint()
        return self._knows("nvmlDeviceGetMigMode", self._handle(uuid), byref(current), byref(pending)) and current.value == 1

    def slices(self, uuid: str) -> list[str]:
        """The MIG devices of a GPU that can be seen here, by the UUIDs that CUDA knows them as."""
        most, found = c_uint(), []
        if not self._knows("nvmlDeviceGetMaxMigDeviceCount", self._handle(uuid), byref(most)):
            return []
        for index in range(most.value):
            handle, text = c_void_p(), create_string_buffer(96)
            if self._knows("nvmlDeviceGetMigDeviceHandleByIndex", self._handle(uuid), index, byref(handle)):
                self._call("nvmlDeviceGetUUID", handle, text, 96)
                found.append(text.value.decode())
                self._handles[found[-1]] = handle
        return found

    def vgpu(self, uuid: str) -> bool:
        mode = c_int()
        return self._knows("nvmlDeviceGetVirtualizationMode", self._handle(uuid), byref(mode)) and mode.value == VGPU

    def mps(self, uuid: str) -> bool:
        count = c_uint(1)
        found = (_Process * 1)()
        try:
            self._call("nvmlDeviceGetMPSComputeRunningProcesses_v3", self._handle(uuid), byref(count), found)
        except NvmlError as error:
            return error.code == INSUFFICIENT_SIZE
        return count.value > 0

    def persistent(self, uuid: str) -> bool:
        """Whether the driver stays loaded without users."""
        mode = c_int()
        return self._knows("nvmlDeviceGetPersistenceMode", self._handle(uuid), byref(mode)) and mode.value == 1

    def _handle(self, uuid: str) -> c_void_p:
        if uuid not in self._handles:
            handle = c_void_p()
            if uuid.isdigit():
                self._call("nvmlDeviceGetHandleByIndex_v2", int(uuid), byref(handle))
            else:
                self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), byref(handle))
            self._handles[uuid] = handle
        return self._handles[uuid]

    def _knows(self, name: str, *arguments: Any) -> bool:
        """Whether the driver knows this question for this device."""
        try:
            self._call(name, *arguments)
        except NvmlError:
            return False
        return True

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(name, FUNCTION_NOT_FOUND, "this driver's library has no such function") from None
        code = function(*arguments)
        if code:
            raise NvmlError(name, code, self._library.nvmlErrorString(code).decode())
