"""How bursts in pods stand, beside what their records say: which were cancelled, what their cell waits for, how long something has been so.

It must never end a burst twice, nor tell a cell the same thing again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...protocol import burst
from ..record import RUNNING, Record

if TYPE_CHECKING:
    from ..bursts import Bursts

UNTOLD_SECONDS = 10.0  # for which pods may not run without a reason; what the cluster warns of sooner often passes


class Standing:
    def __init__(self, bursts: Bursts) -> None:
        self.cancelled: set[str] = set()
        self._bursts = bursts
        self._said: dict[str, str] = {}  # what the cell was told last that it waits for
        self._since: dict[tuple[str, str], float] = {}

    def over(self, record: Record, outcome: str, message: str) -> None:
        if record.state == RUNNING:
            self._bursts.over(record, outcome, message)

    def waits(self, record: Record, text: str) -> None:
        if record.state == RUNNING and self._said.get(record.id) != text:
            self._said[record.id] = text
            self._bursts.folder_of(record).note({"t": burst.WAITS, "at": time.time(), "text": text})

    def lasts(self, record: Record, what: str, so: bool, seconds: float) -> bool:
        """Whether something has been so for so many seconds."""
        if not so:
            self._since.pop((record.id, what), None)
            return False
        return time.monotonic() - self._since.setdefault((record.id, what), time.monotonic()) >= seconds

    def forget(self, record: Record) -> None:
        self.cancelled.discard(record.id)
        self._said.pop(record.id, None)
        self._since = {key: since for key, since in self._since.items() if key[0] != record.id}
