"""Bytes as they came and as they are now, compared without hashing what can be compared directly. Never keeps a copy of big ones."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Any, Callable, Optional

from .blobs import Buffer

ALIGNED = 64  # bytes, as vector instructions like it

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Arena:
    """Memory for buffers of ``sizes``: received into ``slots``, used as ``private``, where only pages that are written to are copied.

    What came stays to be compared with. ``file`` (its descriptor, opened for reading and writing) may hold the bytes already, at
    ``offsets``; ranks of one machine that map one file share its pages.
    """

    def __init__(self, sizes: Sequence[int], file: Optional[int] = None) -> None:
        self.offsets, end = [], 0
        for size in sizes:
            self.offsets.append(end)
            end += -(-size // ALIGNED) * ALIGNED
        self.size, self._sizes = max(end, 1), list(sizes)
        own = _anonymous(self.size) if file is None else file
        try:
            self._shared = mmap.mmap(own, self.size, mmap.MAP_SHARED)
            self._private = mmap.mmap(own, self.size, mmap.MAP_PRIVATE)
        finally:
            if file is None:
                os.close(own)
        self._original, self._used = address(self._shared), address(self._private)
        self.slots, self.private = self._cut(self._shared), self._cut(self._private)

    def _cut(self, mapping: mmap.mmap) -> list[memoryview]:
        view = memoryview(mapping)
        return [view[offset : offset + size] for offset, size in zip(self.offsets, self._sizes)]

    def unchanged(self, start: int, size: int) -> Optional[bool]:
        """Whether the bytes at this address are as they came; None if they lie elsewhere."""
        offset = start - self._used
        if offset < 0 or offset + size > self.size:
            return None
        return not _memcmp(start, self._original + offset, size)


def arena_of(blobs: Sequence[Buffer]) -> Arena:
    """One that holds a copy of ``blobs``."""
    views = [memoryview(blob).cast("B") for blob in blobs]
    arena = Arena([len(view) for view in views])
    for slot, view in zip(arena.slots, views):
        slot[:] = view
    return arena


def _anonymous(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("cell", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, size)
    return descriptor


def address(buffer: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def digest(data: Buffer) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


Unchanged = Callable[[], bool]


def baseline(arena: Optional[Arena], start: int, size: int, read: Callable[[], Buffer]) -> Unchanged:
    """A question to be asked later: are these bytes as they are now? ``read`` gives them where only a digest can tell."""
    if arena is not None and arena.unchanged(start, size) is not None:
        return lambda: bool(arena.unchanged(start, size))
    before = digest(read())
    return lambda: digest(read()) == before
