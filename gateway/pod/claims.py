"""Host memory that kernels of this machine are about to take as they park: what each was told is free must not be promised twice.

A claim is a locked file named after its process, below the folder that all users of the machine share, so it ends with the process. It must
never keep anybody from parking where that folder can't be used, nor wait long for one that hangs.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Callable

from ..protocol.errors import SettingError
from ..protocol.locks import GpuLocks

KIND = "parking"
PATIENCE = 30.0  # seconds for others to have parked, where there isn't room for all at once
PAUSE = 0.1  # seconds between two looks


class Claims:
    """Those of one process. ``name`` tells it from others; of those who get into one another's way the one that sorts first goes first."""

    def __init__(
        self, folder: Path, name: str = "", pause: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._name, self._pause, self._clock = folder, name or f"{os.getpid():010}", pause, clock
        self._locks = GpuLocks(folder, kind=KIND)

    def claim(self, need: int, room: Callable[[], int]) -> bool:
        """``need`` bytes, once there are as many beside what others have claimed; False where that has not come true in time."""
        end = self._clock() + PATIENCE
        try:
            while True:
                self._locks.acquire(self._name, str(need))
                others = self._others()
                if need + sum(others.values()) <= room():
                    return True
                if not others or self._clock() > end:
                    break
                if min(others) < self._name:
                    self.leave()  # so that the first one finds room
                self._pause(PAUSE)
        except (SettingError, OSError):
            return need <= room()
        self.leave()
        return False

    def leave(self) -> None:
        """It is taken, or won't be."""
        if self._name in self._locks.held:
            (self._folder / f"{self._name}.{KIND}").unlink(missing_ok=True)
            self._locks.release(self._name)

    def _others(self) -> dict[str, int]:
        """What others have claimed, by name."""
        found = {}
        for path in self._folder.glob(f"*.{KIND}"):
            if path.stem != self._name:
                claimed = self._locks.holder(path.stem).partition(" ")[0]
                if claimed.isdigit():
                    found[path.stem] = int(claimed)
                elif not claimed:  # of one that was killed
                    with contextlib.suppress(OSError):
                        path.unlink(missing_ok=True)
        return found
