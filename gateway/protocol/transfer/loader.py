"""Loads a list of buffers frame by frame, so that one name that can't be loaded doesn't take the others with it.

Never call it on buffers that somebody else may have written: loading a pickle runs code.
"""

from __future__ import annotations

import itertools
import pickle
import pickletools
from collections.abc import Sequence
from typing import Any

from ..errors import WireError
from .blobs import Buffer, Reader, split


class Loader:
    """``frame(0)``, ``frame(1)``, … in this order."""

    def __init__(self, header: dict[str, Any], blobs: Sequence[Buffer], memo: Sequence[Any] = ()) -> None:
        self.frames: list[dict[str, Any]] = header["frames"]
        self._pieces, self._buffers = split(header, list(blobs))
        self._lost: list[range] = []
        self._sent = len(memo)
        self._begin(0, 0, memo)

    def frame(self, at: int) -> Any:
        """What frame ``at`` holds. Raises whatever its objects raise; the next frame can be loaded all the same."""
        try:
            if self._lost:
                self._refuse_lost(at)
            return self._unpickler.load()
        except (Exception, SystemExit):
            self._skip(at)
            raise

    def memo(self) -> dict[int, Any]:
        """Every loaded object that has an index, by index: the packing side counted alike."""
        return self._unpickler.memo.copy()

    def _begin(self, at: int, buffer: int, memo: Sequence[Any]) -> None:
        """An unpickler that knows ``memo`` already. Its own attribute can't be set to that (CPython loses it), so a first pickle takes
        the objects from where buffers come from, one after the other, and memoizes each."""
        first = pickle.PROTO + b"\x05" + (pickle.NEXT_BUFFER + pickle.MEMOIZE + pickle.POP) * len(memo) + pickle.NONE + pickle.STOP
        reader = Reader([first, *(piece for pieces in self._pieces[at:] for piece in pieces)])
        self._unpickler = pickle.Unpickler(reader, buffers=itertools.chain(memo, self._buffers[buffer:]))
        self._unpickler.load()

    def _skip(self, at: int) -> None:
        ends = list(itertools.accumulate(map(_memoized, self._pieces[: at + 1]), initial=self._sent))
        known, end = self._unpickler.memo.copy(), ends[-1]
        self._lost.append(range(ends[-2], end))
        self._begin(at + 1, self.frames[at]["buffers"], [known.get(index) for index in range(end)])

    def _refuse_lost(self, at: int) -> None:
        for code, argument, _ in pickletools.genops(Reader(self._pieces[at])):
            if code.name in ("GET", "BINGET", "LONG_BINGET") and any(int(argument) in lost for lost in self._lost):
                raise WireError("it shares objects with something that could not be loaded")


def _memoized(pieces: list[Buffer]) -> int:
    """How many objects got an index in a frame, read from its pickle alone."""
    return sum(code.name == "MEMOIZE" for code, _, _ in pickletools.genops(Reader(pieces)))
