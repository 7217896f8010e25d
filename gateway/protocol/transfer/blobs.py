"""The list of buffers: one header in JSON, the pickles' own pieces, then the buffers that lie outside of the pickles.

A **frame** is one pickle, mostly of one name, so that sizes and failures belong to a name; all frames of a list share one memo. The
header can be read without unpickling anything. This module must never copy a big buffer.
"""

from __future__ import annotations

import json
from typing import Any, Union

from ..errors import WireError

Buffer = Union[bytes, bytearray, memoryview]

SMALL = 1 << 16  # bytes; pieces below are joined


class Pieces:
    """A file for a pickler: keeps what is written as a list of buffers, big ones as they are."""

    def __init__(self) -> None:
        self.done: list[Buffer] = []
        self._small = bytearray()

    def write(self, data: Buffer) -> int:
        size = memoryview(data).nbytes
        if size < SMALL or not isinstance(data, bytes):  # whatever isn't immutable is the pickler's own and may change
            self._small += data
        else:
            self.flush()
            self.done.append(data)
        return size

    def flush(self) -> None:
        if self._small:
            self.done.append(bytes(self._small))
            self._small = bytearray()


class Reader:
    """A file for an unpickler over such a list."""

    def __init__(self, pieces: list[Buffer]) -> None:
        self._pieces = [memoryview(piece).cast("B") for piece in pieces]
        self._at = self._offset = 0

    def _next(self, size: int) -> memoryview:
        """At most ``size`` bytes without a copy; empty at the end."""
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            if self._offset < len(piece):
                part = piece[self._offset : self._offset + size]
                self._offset += len(part)
                return part
            self._at, self._offset = self._at + 1, 0
        return memoryview(b"")

    def readinto(self, target: Any) -> int:
        into, done = memoryview(target).cast("B"), 0
        while done < len(into):
            part = self._next(len(into) - done)
            if not len(part):
                break
            into[done : done + len(part)] = part
            done += len(part)
        return done

    def read(self, size: int) -> bytes:
        part = bytes(self._next(size))
        while len(part) < size:
            more = self._next(size - len(part))
            if not len(more):
                break
            part += more
        return part

    def peek(self, size: int) -> bytes:
        """What comes next, without taking it: spares an unpickler a call for each step."""
        part = self._next(size)
        self._offset -= len(part)
        return bytes(part)

    def readline(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = self._next(1)
            if not len(byte):
                break
            line += byte
        return bytes(line)


def join(header: dict[str, Any], frames: list[dict[str, Any]], pieces: list[list[Buffer]], buffers: list[Buffer]) -> list[Buffer]:
    """The whole list. ``frames`` and ``pieces`` go together; each frame carries ``buffers``, how many there are to its end."""
    told = [{**frame, "pieces": len(parts)} for frame, parts in zip(frames, pieces)]
    first = json.dumps({**header, "frames": told}, ensure_ascii=True).encode()
    return [first, *(part for parts in pieces for part in parts), *buffers]


def header_of(blobs: list[Buffer]) -> dict[str, Any]:
    """What can be known without unpickling anything. Raises ``WireError``."""
    try:
        header = json.loads(bytes(blobs[0]))
        header["frames"][:0] = []
    except (IndexError, KeyError, TypeError, ValueError) as exc:
        raise WireError(f"These buffers don't begin with our header ({type(exc).__name__}): something else was handed over.") from None
    return header


def split(header: dict[str, Any], blobs: list[Buffer]) -> tuple[list[list[Buffer]], list[Buffer]]:
    """``(pieces of each frame, buffers outside)``. Raises ``WireError`` where some are missing."""
    at, pieces = 1, []
    for frame in header["frames"]:
        pieces.append(blobs[at : at + frame["pieces"]])
        at += frame["pieces"]
    buffers = blobs[at:]
    expected = header["frames"][-1]["buffers"] if header["frames"] else 0
    if at > len(blobs) or len(buffers) != expected:
        raise WireError(f"{at + expected} buffers were sent and {len(blobs)} arrived: send them again.")
    return pieces, buffers
