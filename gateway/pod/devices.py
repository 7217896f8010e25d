"""Which device a supervisor has: simulated GPUs, real ones, or none that could be parked.

At birth it is what the supervisor was told; then what the broker grants decides, as it knows its GPUs. The first look is at files
alone. Nothing here may load a driver or wait for one, nor drop state that only the device at hand can bring back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Callable, Optional

from ..protocol.model import Rung, Spec
from . import leftovers
from .cuda.device import CudaDevice
from .cuda.driver import present
from .device import Device, Done, NoParking
from .reactor import Reactor
from .simulated import Simulated

Costs = Optional[dict[str, float]]  # of simulated GPUs: {"park_seconds", "seconds_per_gb"}; None: they are real


class SuitedDevice(Device):
    """The device that suits what is granted. ``mark``: "NAME=value" in the environment of each process of the kernel. ``changed()``:
    what the device says of itself has."""

    def __init__(self, spec: Spec, reactor: Reactor, mark: str, changed: Callable[[], None]) -> None:
        self._gpus, self._reactor, self._mark, self._changed = spec.gpus, reactor, mark, changed
        self._device = self._make(spec.simulated)

    def suit(self, simulated: Costs) -> None:
        """What is granted next is of this kind. Called while the kernel holds nothing. State of a real GPU keeps its device: the resume
        then says what is wrong. Simulated state is no state."""
        if (simulated is not None) == (self.simulated is not None) or (self._device.parked and self.simulated is None):
            return
        self._device.close()
        self._device = self._make(simulated)

    @property
    def simulated(self) -> Optional[Simulated]:
        """The simulated device, None where there is another."""
        return self._device if isinstance(self._device, Simulated) else None

    def _make(self, simulated: Costs) -> Device:
        if simulated is not None:
            return Simulated(self._reactor, simulated["park_seconds"], simulated["seconds_per_gb"])
        if not self._gpus:
            return NoParking("it leases no GPU")
        if not present(os.environ):
            return NoParking("no NVIDIA driver is installed where it runs")
        return CudaDevice(self._reactor, self._gpus, self._mark, self._changed)

    # as the device at hand

    @property
    def known(self) -> bool:  # type: ignore[override]
        return self._device.known

    @property
    def alarm(self) -> str:  # type: ignore[override]
        return self._device.alarm

    @property
    def freezes(self) -> bool:  # type: ignore[override]
        return self._device.freezes

    def probe(self) -> tuple[Rung, str]:
        return self._device.probe()

    @property
    def parked(self) -> bool:
        return self._device.parked

    def take(self, gpus: Sequence[str], visible: Sequence[str], done: Callable[[], None]) -> None:
        self._device.take(gpus, visible, done)

    def park(self, pid: int, done: Done) -> None:
        self._device.park(pid, done)

    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        self._device.resume(pid, gpus, done)

    def all_of_node(self, first: Sequence[str]) -> list[str]:
        return self._device.all_of_node(first)

    def uses(self, pid: int, seconds: float, done: Callable[[bool], None]) -> None:
        self._device.uses(pid, seconds, done)

    def before_kill(self, pid: int, done: Callable[[], None]) -> None:
        self._device.before_kill(pid, done)

    def forget(self, pid: int, done: Callable[[], None]) -> None:
        self._device.forget(pid, done)

    def gone(self, pid: int, on_gpu: bool, done: Callable[[], None]) -> None:
        """The kernel process has ended; ``on_gpu``: it held GPUs. ``done``: they are free of it, as far as that can be brought about."""
        if on_gpu and not self._device.finds_left:
            leftovers.end(pid, self._mark)
        self.forget(pid, done)

    def close(self) -> None:
        self._device.close()
