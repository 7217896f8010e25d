"""The kernel's lease as its supervisor lives it: obeys grant and park, and keeps the truth about what is held.

It must never park while a cell runs, and never open the gate before the state is back on the GPU.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Optional

from ..protocol.errors import DeviceError, ExecutingError, LeaseError
from ..protocol.model import GPU_IN_USE, LeaseState, Phase, Rung
from .devices import SuitedDevice
from .gate import Effect, Gate
from .messages import seconds
from .possession import Possession

log = logging.getLogger(__name__)

TRIES, TRY_AGAIN = 25, 0.02  # how often, and after how many seconds, a GPU on which another kernel still is is tried again
SPARES = frozenset({"idle", "asked"})  # reasons to park for which no process is ended


class Lease:
    """``apply`` carries out what the gate decides; ``expose(visible)`` tells the kernel which devices it is to see; ``quiet(then)``
    has it let go of what it caches, ``then(True)`` once it is idle; ``kill(why)`` ends its process."""

    def __init__(
        self, gate: Gate, device: SuitedDevice, pid: Callable[[], int], apply: Callable[[list[Effect]], None],
        expose: Callable[[list[str]], None], quiet: Callable[[Callable[[bool], None]], None], kill: Callable[[str], None],
        changed: Callable[[], None], possession: Possession, later: Callable[[float, Callable[[], None]], object],
    ) -> None:  # fmt: skip
        self._gate, self._device, self._pid, self._apply, self._changed = gate, device, pid, apply, changed
        self._possession, self._later = possession, later
        self._newest: list[int] = []  # the order obeyed last
        self._expose, self._quiet, self._kill = expose, quiet, kill
        self._state = LeaseState(count=gate.count)
        self._since = self._idle_since = time.monotonic()
        self._phase = Phase.COLD
        self._hold_until = 0.0
        self._was_executing = False
        self._life = object()  # of what is on the GPUs

    # orders of the broker

    def suit(self, simulated: Optional[dict[str, float]], lock_dir: Optional[str]) -> None:
        """The GPUs of the grant that follows are simulated ones with these costs, or real (None), and locked there (None: as ever)."""
        if self._gate.rest in (Phase.COLD, Phase.PARKED):
            self._device.suit(simulated)
            self._possession.move(lock_dir)

    def grant(
        self, gpus: list[str], visible: list[str], epoch: list[int], devices: Optional[list[str]] = None, tries: int = TRIES
    ) -> None:  # fmt: skip
        """May run on ``gpus`` (none: there is nothing to lease here): bring the state back, then open the gate.

        ``visible``: what a kernel that has no state yet is to see, the leased ones first. ``devices``: what CUDA knows ``gpus`` as, in
        the same order; None: as the broker does.
        """
        devices = gpus if devices is None else devices
        self._newest = epoch
        if self._gate.rest not in (Phase.COLD, Phase.PARKED):
            self._answer(epoch, "not_waiting", "the kernel holds a GPU already")
        elif not self._gate.wanted:
            self._answer(epoch, "unwanted", "the cells that waited were interrupted")
        elif not gpus:
            self._state.gpus = []
            self._resumed(epoch, None)
        elif taken := self._possession.take(devices):
            if tries:  # a process that was killed may still be ending
                self._later(TRY_AGAIN, lambda: self.grant(gpus, visible, epoch, devices, tries - 1) if self._newest is epoch else None)
            else:
                self._answer(epoch, GPU_IN_USE, taken)
        else:
            self._state.gpus, self._life = list(gpus), object()
            self._answer(epoch, "")  # taken, not done
            self._move(Phase.RESUMING)
            if self._device.parked:
                self._device.resume(self._pid(), devices, lambda error, _: self._resumed(epoch, error))
            else:
                self._device.take(devices, visible, lambda: self._taken(epoch, visible))

    def park(self, epoch: list[int], why: str) -> None:
        """Take the state off its GPUs, unless a cell began meanwhile. ``why``: as the broker has it, "reclaimed" for others."""
        self._newest = epoch
        if self._gate.rest is not Phase.HOLDING:
            self._answer(epoch, "not_holding", f"the kernel is {self._gate.phase}")
        elif self._gate.executing:
            self._gate.yielding = why not in SPARES  # others wait: this kernel's next cell lets them go first
            self._answer(epoch, "executing", "a cell is running")
        elif not self._state.gpus:
            self._answer(epoch, "done")
            self._move(Phase.COLD)
        elif self._gate.lost and why in SPARES:  # only the end of the process frees the GPU, and it may know more than it had there
            self._answer(epoch, "state_lost", self._gate.lost)
        elif self._gate.lost:
            self._kill(self._gate.lost)
        else:
            self._answer(epoch, "")
            self._move(Phase.PARKING)
            self._quiet(lambda idle: self._leave(epoch, idle))

    def deny(self, reason: str, message: str, epoch: list[int]) -> None:
        """The cells that wait can't have what they need."""
        self._newest = epoch
        self._answer(epoch, "done")
        self._apply(self._gate.denied("LeaseError", message))

    # the user's wishes

    def hold(self, duration: float) -> str:
        """Keep the GPU for ``duration`` seconds even if idle (0 ends an earlier hold); returns a sentence."""
        if not 0 <= duration <= 366 * 86400:
            raise LeaseError("a hold lasts from 0 to 366 days", reason="bad_request")
        self._hold_until = time.monotonic() + duration
        self._changed()
        if not duration:
            return "The GPU goes back after its idle time again."
        begins = "" if self._gate.rest is Phase.HOLDING else ", once it has one"
        return f"The GPU stays with this kernel for {seconds(duration)}{begins}, as far as the admin's maximum allows."

    def release(self) -> str:
        """Give the GPU back now. Raises ``ExecutingError`` while a cell runs, ``LeaseError`` where none is held."""
        if self._gate.executing:
            raise ExecutingError("A GPU cell is running: interrupt it, or wait until it ends, and release the GPU then.")
        if self._gate.rest not in (Phase.HOLDING, Phase.RESUMING):
            raise LeaseError("This kernel holds no GPU now.", reason="not_holding")
        if self._gate.lost:
            raise LeaseError("Only a restart of this kernel frees its GPU: its GPU state is lost.", reason="state_lost")
        rung, why = self._device.probe()
        if rung is Rung.EXCLUSIVE and self._state.gpus:
            raise LeaseError(f"This kernel keeps its GPU until it ends or is restarted: {why}.", reason="exclusive")
        self._hold_until = 0.0
        self._state.release_asked += 1
        self._changed()
        return "The GPU goes back now; the next GPU cell asks for it again."

    # what happens to the kernel

    def kernel_gone(self, then: Callable[[], None]) -> None:
        """The process ended, and its CUDA state with it. Its GPUs are let go, and ``then`` is called, once nothing else of it is there."""
        on_gpu = bool(self._state.gpus)
        self._state.gpus, self._state.home, self._state.parked_bytes, self._state.fatal = [], [], 0, False
        self._hold_until = 0.0
        self._mark()
        life = self._life = object()

        def left() -> None:
            if self._life is life:  # else its next process has been granted them meanwhile
                self._possession.leave()
            then()

        self._device.gone(self._pid(), on_gpu, left)

    def state(self) -> LeaseState:
        """The whole truth, now."""
        self._mark()
        now, state = time.monotonic(), self._state
        state.phase, state.wanted, state.executing = self._phase, self._gate.wanted, self._gate.executing
        state.phase_for = now - self._since
        state.idle_for = None if state.executing else now - self._idle_since
        state.hold_for = max(0.0, self._hold_until - now)
        state.alarm = self._device.alarm
        rung, state.rung_reason = self._device.probe()
        state.rung = rung if self._device.known else ""
        return state

    # inside

    def _taken(self, epoch: list[int], visible: list[str]) -> None:
        self._expose(visible)
        self._resumed(epoch, None)

    def _resumed(self, epoch: list[int], error: Optional[DeviceError]) -> None:
        if error is None:
            self._idle_since = time.monotonic()
            self._answer(epoch, "done")
            self._state.home, self._state.parked_bytes = list(self._state.gpus), 0
            self._move(Phase.HOLDING)
            return
        self._answer(epoch, "resume_failed", str(error))
        if error.fatal:
            self._lost(error)
            return
        self._state.gpus = []
        self._move(Phase.PARKED)
        self._apply(self._gate.denied("DeviceError", str(error)))

    def _leave(self, epoch: list[int], idle: bool) -> None:
        if idle:
            self._device.park(self._pid(), lambda error, size: self._parked(epoch, error, size))
        else:
            self._parked(epoch, DeviceError("the kernel is busy with something that is no cell", reason="executing"), 0)

    def _parked(self, epoch: list[int], error: Optional[DeviceError], size: int) -> None:
        if error is None:
            self._state.home, self._state.gpus, self._state.parked_bytes = self._state.gpus, [], size
            self._answer(epoch, "done")
            self._move(Phase.PARKED)
            return
        self._answer(epoch, error.reason, str(error))
        if error.fatal:
            self._lost(error)
        else:
            self._move(Phase.HOLDING)

    def _lost(self, error: DeviceError) -> None:
        """The kernel goes on without its CUDA state, for what else it knows; a GPU that it may still occupy stays held until it ends."""
        self._state.fatal, self._state.parked_bytes, self._state.home = True, 0, []
        self._gate.lost = str(error)
        if not error.occupied:
            self._state.gpus = []
        self._move(Phase.HOLDING if error.occupied else Phase.COLD)

    def _move(self, rest: Phase) -> None:
        if not self._state.gpus:
            self._possession.leave()  # before anybody is told that they are free
        self._apply(self._gate.moved(rest))
        self._mark()
        self._changed()

    def _answer(self, epoch: list[int], answer: str, message: str = "") -> None:
        self._state.order, self._state.answer, self._state.answer_message = list(epoch), answer, message
        self._changed()

    def _mark(self) -> None:
        now = time.monotonic()
        if self._gate.phase is not self._phase:
            self._phase, self._since = self._gate.phase, now
        if self._gate.executing:
            self._was_executing = True
        elif self._was_executing:
            self._was_executing, self._idle_since = False, now

    def keep(self) -> None:
        """Now and then: what is held stays held, whoever tidies the folder of the locks."""
        taken = self._possession.keep()
        if taken:
            log.error("a GPU that this kernel holds has been locked by another: %s", taken)

    def describe(self) -> dict[str, Any]:
        rung, reason = self._device.probe()
        return {"rung": str(rung), "rung_reason": reason, "alarm": self._device.alarm}
