"""Simulated GPUs: the device interface with a cost that the admin sets and no driver behind it.

Everything but the last step is the real path: the host must have room for what is parked, and each move takes
``park_seconds + seconds_per_gb * GB``. The kernel says how much memory it pretends to have on the GPU (``%gpu simulate 4GB``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Optional, Sequence

from ..protocol.errors import DeviceError
from ..protocol.model import Rung
from .device import Device, Done
from .reactor import Reactor, Timer


class Simulated(Device):
    def __init__(self, reactor: Reactor, park_seconds: float, seconds_per_gb: float, headroom: Optional[Callable[[], int]] = None) -> None:
        self._reactor, self._seconds, self._per_gb = reactor, park_seconds, seconds_per_gb
        self._headroom = headroom or host_headroom
        self._timer: Optional[Timer] = None
        self.bytes = 0  # what the kernel pretends to have on the GPU
        self._parked = False

    def probe(self) -> tuple[Rung, str]:
        return Rung.ANYWHERE, "simulated"

    @property
    def parked(self) -> bool:
        return self._parked

    def take(self, gpus: Sequence[str], visible: Sequence[str], done: Callable[[], None]) -> None:
        done()

    def park(self, pid: int, done: Done) -> None:
        if self.bytes > self._headroom():
            done(DeviceError(f"{self.bytes} bytes of GPU memory don't fit into this machine's free memory", reason="does_not_fit"), 0)
            return
        self._after(done, parked=True)

    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        self._after(done, parked=False)

    def forget(self) -> None:
        self.bytes, self._parked = 0, False
        if self._timer:
            self._timer.cancel()

    def _after(self, done: Done, parked: bool) -> None:
        def moved() -> None:
            self._parked = parked
            done(None, self.bytes)

        self._timer = self._reactor.call_later(self._seconds + self._per_gb * self.bytes / 1e9, moved)


def host_headroom() -> int:
    """Bytes of host memory that parked state may take: what the cgroup and the machine have left, whichever is less."""
    room = 1 << 62
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            room = int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        pass
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return min(room, int(line.split()[1]) * 1024)
    except (OSError, ValueError):
        pass
    return room
