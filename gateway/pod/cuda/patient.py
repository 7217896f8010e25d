"""A program with memory on a GPU, for the node's checks to park and resume: ``python -c SOURCE`` with any interpreter.

It does what it is told, a line at a time: Python in, its value out as JSON. It must stand alone, as the interpreter that has the
user's frameworks need not have this package.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid

BLOCK, EVERY = 1 << 16, 64 << 20  # so much is written, and again after so much
_blocks: list[tuple[int, bytes]] = []


def call(name: str, *args: object) -> None:
    """One CUDA call; raises ``RuntimeError`` where it answers an error."""
    code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*args)
    if code:
        raise RuntimeError(f"{name} answered {code}")


def start(device: int = 0) -> None:
    """A context."""
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


def fill(size: int) -> None:
    """Allocate ``size`` bytes and write something known into them, here and there."""
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    for offset in range(0, size - BLOCK, EVERY):
        block = uuid.uuid4().bytes * (BLOCK // 16)
        call("cuMemcpyHtoD_v2", ctypes.c_uint64(address.value + offset), block, ctypes.c_size_t(BLOCK))
        _blocks.append((address.value + offset, block))


def unharmed() -> bool:
    """Whether all that was written is still there."""
    out = ctypes.create_string_buffer(BLOCK)
    for at, block in _blocks:
        call("cuMemcpyDtoH_v2", out, ctypes.c_uint64(at), ctypes.c_size_t(BLOCK))
        if out.raw != block:
            return False
    return True


def where(device: int = 0) -> str:
    """The UUID of a device, as this process sees it now."""
    raw = (ctypes.c_ubyte * 16)()
    call("cuDeviceGetUuid_v2", raw, device)
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def main() -> None:
    for line in sys.stdin:
        code = json.loads(line)
        try:
            try:
                answer = {"value": eval(compile(code, "<check>", "eval"), globals())}
            except SyntaxError:
                exec(compile(code, "<check>", "exec"), globals())
                answer = {"value": None}
        except Exception as exc:
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
