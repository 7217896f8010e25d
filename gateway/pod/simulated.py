"""Simulated GPUs: the device interface with a cost that the admin sets and no driver behind it.

Everything but the last step is the real path: the host must have room for what is parked, and each move takes
``park_seconds + seconds_per_gb * GB``. The kernel says how much memory it pretends to have on the GPU (``%gpu simulate 4GB``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional

from ..protocol.errors import DeviceError
from ..protocol.model import Rung
from .device import Device, Done
from .headroom import host_headroom
from .messages import size
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
        room = self._headroom()
        if self.bytes > room:
            done(
                DeviceError(
                    f"{size(self.bytes)} of GPU state don't fit into the {size(room)} of host memory that are left", reason="does_not_fit"
                ),
                0,
            )
            return
        self._after(True, done)

    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        self._after(False, done)

    def forget(self, pid: int, done: Callable[[], None]) -> None:
        self.bytes, self._parked = 0, False
        if self._timer:
            self._timer.cancel()
        done()

    def _after(self, parked: bool, done: Done) -> None:
        def moved() -> None:
            self._parked = parked
            done(None, self.bytes)

        self._timer = self._reactor.call_later(self._seconds + self._per_gb * self.bytes / 1e9, moved)
