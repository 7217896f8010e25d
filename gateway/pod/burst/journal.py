"""What an agent writes down: every event of a burst, in order, for whoever reads now or later.

It must never lose an event that isn't output, and never drop output without saying how much. Where the disk is full, what isn't output
waits for room.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ...protocol import burst

LONGEST = 4000  # characters of a sentence about the end
ROOM = 512 << 10  # bytes that are kept free for the end: the rest of a line that found no room goes before it
LAST_WORD = 5.0  # seconds for the end to find room on a disk that is full
AGAIN = 0.1  # between two tries


class Journal:
    """Appends to the file at ``path``. After ``most`` bytes of output the rest is counted, and told at the end."""

    def __init__(self, path: Path, most: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._left = most
        self._dropped = 0
        self._waiting = b""  # there was no room for it
        self._room = path.with_name(f"{path.name}.room")
        _reserve(self._room, ROOM)

    def add(self, kind: str, **fields: Any) -> None:
        data = burst.line({"t": kind, "at": round(time.time(), 3), **fields})
        if kind != burst.SHOW:
            self._write(data)
        elif self._has_room(len(data)):
            self._write(data)
            self._tell_if_full()

    def output(self, rank: int, name: str, text: str, **fields: Any) -> None:
        if self._has_room(len(text)):
            self.add(burst.OUT, rank=rank, name=name, text=text, **fields)
            self._tell_if_full()

    def end(self, outcome: str, message: str = "") -> None:
        self._room.unlink(missing_ok=True)
        if self._dropped:
            self.add(burst.NOTE, text=f"{self._dropped} characters of output were dropped (Bursts.journal_bytes, or a full disk).")
        self.add(burst.END, outcome=outcome, message=message[:LONGEST])
        until = time.monotonic() + LAST_WORD
        while self._waiting and time.monotonic() < until:
            time.sleep(AGAIN)
            self._write(b"")

    # inside

    def _has_room(self, size: int) -> bool:
        """For output of so many characters, which is counted in any case."""
        if self._left <= 0 or self._waiting:
            self._dropped += size
            self._write(b"")
            return False
        self._left -= size
        return True

    def _tell_if_full(self) -> None:
        if self._left <= 0:
            self.add(burst.NOTE, text="This burst has printed as much as is kept (Bursts.journal_bytes); more output is dropped.")

    def _write(self, data: bytes) -> None:
        data = self._waiting + data
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            pass  # no room: what is written is never half a line for long
        self._waiting = data


def _reserve(path: Path, size: int) -> None:
    """Nothing where there is no room for it, or where the system can't."""
    try:
        with open(path, "wb", opener=burst.private) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except (OSError, AttributeError):
        pass
