"""What a supervisor asks of the driver: to take a kernel's CUDA state off its GPUs and to bring it back.

This is the interface that every device follows, real or simulated. An implementation must never block: it calls back when it is
done. It must never try a restore that may not fit, because a failed one is fatal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Callable, Optional

from ..protocol.errors import DeviceError
from ..protocol.model import Rung

Done = Callable[[Optional[DeviceError], int], None]  # (error, bytes that were moved)


class Device(ABC):
    """The GPUs of one kernel, as the driver lets its parent handle them."""

    known = True  # False: ``probe`` can't tell yet
    finds_left = False  # the driver tells what of a kernel that has ended is still on its GPUs
    freezes = False  # what has state on its GPUs has to be checkpointed before it is killed
    alarm = ""  # a driver call that doesn't come back, as people are told of it; "" where all is well

    @abstractmethod
    def probe(self) -> tuple[Rung, str]:
        """The rung of the ladder that this kernel's state has, as known now, and why not a better one. Must be cheap."""

    @property
    @abstractmethod
    def parked(self) -> bool:
        """Something has to be resumed before the kernel may run: state in host memory, or a process that is bound to its GPUs."""

    @abstractmethod
    def take(self, gpus: Sequence[str], visible: Sequence[str], done: Callable[[], None]) -> None:
        """The kernel has nothing parked and gets ``gpus`` (UUIDs); ``visible``: what CUDA_VISIBLE_DEVICES will name. Called at each
        grant that needs no resume; the kernel runs once it calls back."""

    @abstractmethod
    def park(self, pid: int, done: Done) -> None:
        """Move the state of all of the kernel's processes to host memory. Called only while no cell runs.

        On an error the state is where it was, unless ``DeviceError.fatal``.
        """

    @abstractmethod
    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        """Bring the state back onto ``gpus`` (UUIDs, in the order of those it left). Called once those are granted.

        On an error the state is still parked, unless ``DeviceError.fatal``.
        """

    def all_of_node(self, first: Sequence[str]) -> list[str]:
        """Every GPU that can be seen here, ``first`` these; they alone where it can't be told."""
        return list(first)

    def uses(self, pid: int, seconds: float, done: Callable[[bool], None]) -> None:
        """Whether the kernel has computed on its GPUs within the last ``seconds``, as the driver tells it; False where it can't tell."""
        done(False)

    def before_kill(self, pid: int, done: Callable[[], None]) -> None:
        """The kernel is about to be killed: make that safe, if it takes no more than seconds. Called before each SIGTERM or SIGKILL."""
        done()

    @abstractmethod
    def forget(self, pid: int, done: Callable[[], None]) -> None:
        """The kernel process has ended, and all of its state; an operation under way must not call back any more. With ``finds_left``
        what else of the kernel is on the GPU ends before ``done`` is called, if it can be ended."""

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """The supervisor ends."""


class NoParking(Device):
    """GPUs whose state stays where it is: a kernel that has got one keeps it until it ends. ``reason``: why that is so."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def probe(self) -> tuple[Rung, str]:
        return Rung.EXCLUSIVE, self._reason

    @property
    def parked(self) -> bool:
        return False

    def take(self, gpus: Sequence[str], visible: Sequence[str], done: Callable[[], None]) -> None:
        done()

    def park(self, pid: int, done: Done) -> None:
        done(DeviceError(f"This kernel keeps its GPU: {self._reason}.", reason="exclusive"), 0)

    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        done(None, 0)

    def forget(self, pid: int, done: Callable[[], None]) -> None:
        done()
