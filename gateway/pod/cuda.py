"""What a supervisor asks of the driver: to take a kernel's CUDA state off its GPUs and to bring it back.

This is the interface that every device follows, real or simulated. An implementation must never block: it calls back when it is
done. It must never try a restore that may not fit, because a failed one is fatal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Callable, Optional, Sequence

from ..protocol.errors import DeviceError
from ..protocol.model import Rung

Done = Callable[[Optional[DeviceError], int], None]  # (error, bytes that were moved)


class Device(ABC):
    """The GPUs of one kernel, as the driver lets its parent handle them."""

    @abstractmethod
    def probe(self) -> tuple[Rung, str]:
        """The rung of the ladder that this machine reaches, and why not a better one. Called once at start."""

    @abstractmethod
    def discover(self, pid: int) -> list[int]:
        """Process ids of the kernel and its descendants that hold CUDA state. Called before each park."""

    @abstractmethod
    def park(self, pid: int, done: Done) -> None:
        """Move the state of all of the kernel's processes to host memory. Called only while no cell runs.

        On an error the state is where it was, unless ``DeviceError.fatal``.
        """

    @abstractmethod
    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        """Bring the state back onto ``gpus`` (UUIDs, in the order of those it left). Called once those are granted."""

    @abstractmethod
    def forget(self) -> None:
        """The kernel process has ended, and all of its state; an operation under way must not call back any more."""


class NoParking(Device):
    """GPUs whose state stays where it is: a kernel that has got one keeps it until it ends."""

    def probe(self) -> tuple[Rung, str]:
        return Rung.EXCLUSIVE, "parking CUDA state through the driver is not in this version"

    def discover(self, pid: int) -> list[int]:
        return []

    def park(self, pid: int, done: Done) -> None:
        done(DeviceError(self.probe()[1], reason="exclusive"), 0)

    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        done(None, 0)

    def forget(self) -> None:
        pass
