"""A CUDA device as a supervisor has it, on the double's machine, with programs in the place of kernels."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.pod.cuda.device import CudaDevice
from gateway.pod.reactor import Reactor
from gateway.protocol.errors import DeviceError

from ..doubles.cuda import GIB, MIB, MISSING, Node
from ..doubles.cuda.program import Program

PATIENCE = 20.0
CONTEXT, SIZE = 64 * MIB, 300 * MIB  # small, as what is parked has to fit into the memory of any machine that runs this
STATE = CONTEXT + SIZE
needs_double = pytest.mark.skipif(bool(MISSING), reason=MISSING)


class Rig:
    """One node, one device; ``park`` and ``resume`` wait for the answer: ``(error, bytes)``."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **node: Any) -> None:
        self.node = Node(folder, **{"memory": 2 * GIB, "context": CONTEXT, **node})
        for name, value in self.node.env.items():
            monkeypatch.setenv(name, value)
        self.reactor = Reactor()
        self.reactor.after_each_turn(self._look)
        self.programs: list[Program] = []
        self._true: Callable[[], Any] = lambda: False
        self.mark = f"ELASTIC_SUPERVISOR={self.node.path}.sock"
        self._devices: list[CudaDevice] = []
        self.device = self.make()
        self.until(lambda: self.device.known)

    def make(self, count: int = 1, **more: Any) -> CudaDevice:
        self._devices.append(CudaDevice(self.reactor, count, self.mark, lambda: None, **more))
        return self._devices[-1]

    def program(self, size: int = SIZE, start: bool = True, **env: str) -> Program:
        """In the place of a kernel: ``size`` bytes on its GPU, with a mark in them."""
        name, _, value = self.mark.partition("=")
        program = Program(self.node, start, **{name: value, **env})
        self.programs.append(program)
        if start and size:
            program.do(f"m = device.Memory({size}); m.write(b'kept', {size // 2})")
            program.do("def kept(): return m.read(4, m.size // 2) == b'kept'")
        return program

    def until(self, true: Callable[[], Any], patience: float = PATIENCE) -> None:
        if true():
            return
        self._true = true
        late: list[bool] = []
        timer = self.reactor.call_later(patience, lambda: (late.append(True), self.reactor.stop()))  # type: ignore[func-returns-value]
        self.reactor.run()
        timer.cancel()
        if late:
            raise TimeoutError("it did not come true")

    def wait(self, true: Callable[[], Any], patience: float = PATIENCE) -> None:
        """For what no callback tells of."""
        end = time.monotonic() + patience
        while not true():
            if time.monotonic() > end:
                raise TimeoutError("it did not come true")
            self.pass_time(0.01)

    def killed(self) -> None:
        """Kill the helper, and let the device notice."""
        helper = self.device._helper
        assert helper is not None
        os.kill(helper.pid, signal.SIGKILL)
        self.until(lambda: self.device._helper is not helper)

    def pass_time(self, seconds: float) -> None:
        passed: list[bool] = []
        self.reactor.call_later(seconds, lambda: passed.append(True))
        self.until(lambda: passed)

    def _look(self) -> None:
        if self._true():
            self.reactor.stop()

    def take(self, *gpus: str, visible: tuple[str, ...] = ()) -> None:
        ready: list[bool] = []
        self.device.take(list(gpus) or self.node.uuids[:1], list(visible or gpus or self.node.uuids[:1]), lambda: ready.append(True))
        self.until(lambda: ready)

    def park(self, program: Program) -> tuple[DeviceError | None, int]:
        return self.answer(lambda done: self.device.park(program.pid, done))

    def resume(self, program: Program, *gpus: str) -> tuple[DeviceError | None, int]:
        return self.answer(lambda done: self.device.resume(program.pid, list(gpus) or self.node.uuids[:1], done))

    def uses(self, program: Program, seconds: float) -> bool:
        return bool(self.answer_of(lambda done: self.device.uses(program.pid, seconds, done)))

    def answer_of(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        answers: list[Any] = []
        ask(answers.append)
        self.until(lambda: answers)
        return answers[0]

    def answer(self, ask: Callable[[Callable[[DeviceError | None, int], None]], None]) -> tuple[DeviceError | None, int]:
        answers: list[tuple[DeviceError | None, int]] = []
        ask(lambda error, size: answers.append((error, size)))
        self.until(lambda: answers)
        return answers[0]

    def close(self) -> None:
        for device in self._devices:
            device.close()
        for program in self.programs:
            program.end()
        self.node.close()
