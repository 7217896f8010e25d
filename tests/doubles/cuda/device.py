"""Device memory for programs under test, through whatever libcuda there is: the double's or a real one.

It is put beside a test's program and imported there; it must never import anything of this repository.
"""

from __future__ import annotations

import ctypes
import uuid

_cuda = ctypes.CDLL("libcuda.so.1")
_u64, _size = ctypes.c_uint64, ctypes.c_size_t


class CudaError(RuntimeError):
    def __init__(self, code: int, call: str) -> None:
        super().__init__(f"{call} answered {code}")
        self.code = code


def call(name: str, *args: object) -> None:
    code = getattr(_cuda, name)(*args)
    if code:
        raise CudaError(code, name)


def start(device: int = 0) -> None:
    """A context on one device of those that this process sees."""
    call("cuInit", 0)
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


class Memory:
    """``size`` bytes on the current device."""

    def __init__(self, size: int) -> None:
        self.size, self._address = size, _u64()
        call("cuMemAlloc_v2", ctypes.byref(self._address), _size(size))

    def write(self, data: bytes, offset: int = 0) -> None:
        call("cuMemcpyHtoD_v2", _u64(self._address.value + offset), data, _size(len(data)))

    def read(self, size: int, offset: int = 0) -> bytes:
        out = ctypes.create_string_buffer(size)
        call("cuMemcpyDtoH_v2", out, _u64(self._address.value + offset), _size(size))
        return out.raw

    def free(self) -> None:
        call("cuMemFree_v2", self._address)


def device_uuid(device: int = 0) -> str:
    raw = (ctypes.c_ubyte * 16)()
    call("cuDeviceGetUuid_v2", raw, device)
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def count() -> int:
    number = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(number))
    return number.value


def work(milliseconds: int) -> None:
    """Keep the device busy, without waiting for it (the double alone)."""
    call("doubleWork", milliseconds)


def synchronize() -> None:
    call("cuCtxSynchronize")
