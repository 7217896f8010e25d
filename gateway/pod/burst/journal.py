"""What an agent writes down: every event of a burst, in order, for whoever reads now or later.

It must never lose an event that isn't output, and never drop output without saying how much.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ...protocol import burst


class Journal:
    """Appends to the file at ``path``. After ``most`` bytes of output the rest is counted, and told at the end."""

    def __init__(self, path: Path, most: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._left = most
        self._dropped = 0

    def add(self, kind: str, **fields: Any) -> None:
        data = burst.line({"t": kind, "at": round(time.time(), 3), **fields})
        while data:
            data = data[os.write(self._file, data) :]

    def output(self, rank: int, name: str, text: str, **fields: Any) -> None:
        if self._left <= 0:
            self._dropped += len(text)
            return
        self._left -= len(text)
        self.add(burst.OUT, rank=rank, name=name, text=text, **fields)
        if self._left <= 0:
            self.add(burst.NOTE, text="This burst has printed as much as is kept (Bursts.journal_bytes); more output is dropped.")

    def end(self, outcome: str, message: str = "") -> None:
        if self._dropped:
            self.add(burst.NOTE, text=f"{self._dropped} characters of output were dropped (Bursts.journal_bytes).")
        self.add(burst.END, outcome=outcome, message=message)
