"""Which device a supervisor has: simulated GPUs, real ones, or none that could be parked.

The first look is at files alone. Nothing here may load a driver or wait for one.
"""

from __future__ import annotations

import os
from typing import Callable

from ..protocol.model import Spec
from .cuda import CudaDevice
from .device import Device, NoParking
from .driver import present
from .reactor import Reactor
from .simulated import Simulated


def device_for(spec: Spec, reactor: Reactor, mark: str, changed: Callable[[], None]) -> Device:
    """``mark``: "NAME=value" in the environment of each process of the kernel. ``changed()``: what the device says of itself has."""
    if spec.simulated is not None:
        return Simulated(reactor, spec.simulated["park_seconds"], spec.simulated["seconds_per_gb"])
    if not spec.gpus:
        return NoParking("it leases no GPU")
    if not present(os.environ):
        return NoParking("no NVIDIA driver is installed where it runs")
    return CudaDevice(reactor, spec.gpus, mark, changed)
