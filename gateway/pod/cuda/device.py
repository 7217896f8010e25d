"""A kernel's CUDA state on real GPUs: parked and resumed by a helper process, and brought to a true state whatever happens to that.

Nothing here waits: requests go out, answers come by the loop, and a driver call that doesn't come back is an alarm, no more. It
must never load the driver into the supervisor, and never say that a GPU is free because something failed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional

from ...protocol.errors import DeviceError
from ...protocol.model import Rung
from .. import leftovers
from ..device import Device, Done
from ..reactor import Reactor
from .driver import CHECKPOINTED, RUNNING
from .line import Fields, Helper
from .operation import Operation, Parked
from .parking import RESTART, UNFIT
from .standing import Standing

log = logging.getLogger(__name__)

ALARM_SECONDS = 30.0  # for one step of the driver's, and more for a large state
LOCK_SECONDS = 5.0  # for GPU work that was submitted and isn't done
ROOM_SECONDS = 2.0  # for the memory of whoever had the GPU before and has just ended
LOOK_SECONDS = 2.0  # for a look at the GPUs
FREEZE_SECONDS = 10.0  # for making a kernel safe to kill
SWEEP_SECONDS = 15.0  # for ending what a kernel has left; what hangs longer hangs in the driver
HELPERS = 5  # that may die in one operation
AGAIN_SECONDS = 1.0  # before another is tried to be started where one couldn't


class CudaDevice(Device):
    """``mark``: what is in the environment of each of the kernel's processes ("NAME=value"). ``changed()``: rung or alarm have."""

    def __init__(
        self, reactor: Reactor, count: int, mark: str, changed: Callable[[], None],
        alarm_seconds: float = ALARM_SECONDS, lock_seconds: float = LOCK_SECONDS, room_seconds: float = ROOM_SECONDS,
    ) -> None:  # fmt: skip
        self._reactor, self._mark, self._changed = reactor, mark, changed
        self._alarm_seconds, self._lock_seconds, self._room_seconds = alarm_seconds, lock_seconds, room_seconds
        self._standing = Standing(count)
        self._deaths = 0  # of helpers, before the driver has answered
        self._life = 0  # counts kernel processes
        self._gpus: list[str] = []
        self._visible: Optional[frozenset[str]] = None
        self._floor: dict[str, int] = {}  # used on them before the kernel had anything there
        self._parked: Optional[Parked] = None
        self._operation: Optional[Operation] = None
        self._restored = False  # the kernel process lives on after a restore
        self._helper: Optional[Helper] = None
        self._ask("probe", self._probed)

    # what it is

    @property
    def known(self) -> bool:  # type: ignore[override]
        return self._standing.missing is not None

    def probe(self) -> tuple[Rung, str]:
        return self._standing.word(self._gpus, self._visible)

    @property
    def parked(self) -> bool:
        return self._parked is not None

    # what it does

    def take(self, gpus: Sequence[str], visible: Sequence[str], done: Callable[[], None]) -> None:
        self._gpus, self._floor, self._visible = list(gpus), {}, frozenset(visible)
        floor: dict[str, int] = {}

        def looked(answer: Fields) -> None:
            floor.update(answer.get("used", {}))
            go()

        def begin() -> None:  # what is seen later is the kernel's own
            self._floor = floor.copy()
            done()

        go = self._once(begin)

        self._reactor.call_later(LOOK_SECONDS, go)
        self._ask("look", looked, gpus=self._gpus)

    def park(self, pid: int, done: Done) -> None:
        best, reason = self.probe()
        if best is Rung.EXCLUSIVE and self.known:
            word = "not_supported" if self._standing.others_could_park(self._gpus) else "exclusive"
            done(DeviceError(f"This kernel keeps its GPU: {reason}.", reason=word), 0)
            return
        fields = {"root": pid, "mark": self._mark, "gpus": self._gpus, "floor": self._floor, "lock_seconds": self._lock_seconds}
        self._begin(Operation("park", RUNNING, done, fields, time.monotonic()))

    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        parked = self._parked
        if parked is None:
            done(None, 0)
        elif set(gpus) != set(parked.home) and parked.bound:
            done(DeviceError(
                f"A process of this kernel has begun with CUDA on {', '.join(parked.home)} and can't go elsewhere: restart the kernel, or"
                " wait for that GPU.", reason="wrong_gpu"), 0)  # fmt: skip
        else:
            onto = parked.home if set(gpus) == set(parked.home) else list(gpus)
            fields = {"processes": parked.processes, "sizes": parked.sizes, "home": parked.home, "gpus": onto,
                      "room_seconds": self._room_seconds}  # fmt: skip
            self._begin(Operation("resume", CHECKPOINTED, done, fields, time.monotonic(), processes=parked.processes))

    def all_of_node(self, first: Sequence[str]) -> list[str]:
        return [*first, *self._standing.others(first)]

    def uses(self, pid: int, seconds: float, done: Callable[[bool], None]) -> None:
        if not self._gpus or self._operation is not None or not self.finds_left:
            done(False)
            return
        calls = [done]

        def told(answer: Fields) -> None:
            if calls:
                calls.pop()(bool(answer.get("used")))

        self._reactor.call_later(LOOK_SECONDS, lambda: told({}))
        self._ask("uses", told, root=pid, mark=self._mark, gpus=self._gpus, seconds=seconds)

    def before_kill(self, pid: int, done: Callable[[], None]) -> None:
        if not self.freezes or self._parked is not None or self._operation is not None:
            done()
            return
        go = self._once(done)
        self._reactor.call_later(FREEZE_SECONDS, go)
        self._ask("freeze", lambda answer: go(), root=pid, mark=self._mark, gpus=self._gpus)

    @property
    def freezes(self) -> bool:  # type: ignore[override]
        return self._restored and self._standing.hangs_when_killed

    @property
    def finds_left(self) -> bool:  # type: ignore[override]
        return self._standing.missing == ""

    def forget(self, pid: int, done: Callable[[], None]) -> None:
        if self._operation is not None and self._operation.timer is not None:
            self._operation.timer.cancel()
        if self._helper is not None and self._helper.busy:  # it may be in a call that never ends
            self._dismiss()
        calls, before = [done], int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))

        def swept(answer: Optional[Fields] = None) -> None:
            if calls:
                if answer is None or not answer["ok"]:  # the driver doesn't tell who is there, so nobody is spared
                    leftovers.end(pid, self._mark, before)
                calls.pop()()

        if self._gpus and self.finds_left:
            self._ask("sweep", swept, root=pid, mark=self._mark, before=before, freeze=self.freezes)
            self._reactor.call_later(SWEEP_SECONDS, swept)
        else:
            done()
        self._life += 1
        self._operation = self._parked = self._visible = None
        self._gpus, self._floor, self.alarm, self._restored = [], {}, "", False
        self._standing.forget()

    def close(self) -> None:
        self._dismiss()

    # an operation

    def _begin(self, operation: Operation) -> None:
        self._operation = operation
        self._watch(operation)
        self._ask(operation.do, lambda answer: self._answered(operation, answer), lambda event: operation.told(event, time.monotonic()),
                  **operation.fields)  # fmt: skip

    def _answered(self, operation: Operation, answer: Fields) -> None:
        if operation is not self._operation:
            return
        if answer.get("reason") == UNFIT:
            self._dismiss()
        if not answer["ok"]:
            error = DeviceError(
                answer["message"], fatal=answer.get("fatal", False), occupied=answer.get("occupied", False), reason=answer["reason"]
            )
            self._standing.failed(operation.do, error)
            self._finish(operation, error, 0)
        elif operation.do == "park":
            parked = Parked(answer["processes"], answer["sizes"], answer["bytes"], list(self._gpus), answer["bound"])
            self._parked = parked if parked.processes or parked.bound else None
            if parked.bound:
                self._standing.bound()
            self._finish(operation, None, parked.bytes)
        else:
            self._parked, self._restored = None, True
            self._gpus, self._floor = operation.fields["gpus"], answer["floor"]
            self._finish(operation, None, answer["bytes"])

    def _finish(self, operation: Operation, error: Optional[DeviceError], size: int) -> None:
        if operation.timer is not None:
            operation.timer.cancel()
        self._operation, self.alarm = None, ""
        if error is not None:
            log.warning("%s: %s", operation.do, error)
            if error.fatal:
                self._parked = None
        operation.done(error, size)

    # a driver that hangs

    def _watch(self, operation: Operation) -> None:
        patience = operation.patience(self._alarm_seconds, self._parked.bytes if self._parked else 0)
        waited = time.monotonic() - operation.since
        if waited > patience:
            self.alarm = f"NVIDIA's driver has not come back from this for {waited:.0f} s: {operation.step}"
            log.error("%s: %s", operation.do, self.alarm)
            self._changed()
        elif self.alarm:
            self.alarm = ""
            self._changed()
        operation.timer = self._reactor.call_later(max(0.05, min(patience, 10.0) / 3), lambda: self._watch(operation))

    # the helper

    def _ask(self, do: str, answer: Callable[[Fields], None], event: Callable[[Fields], None] = lambda fields: None, **fields: Any) -> None:
        if self._helper is None:
            try:
                self._helper = Helper(self._reactor, self._mark.partition("=")[0], self._lost)
            except OSError as exc:
                log.error("no helper can be started: %s", exc)
                self._reactor.call_later(AGAIN_SECONDS, lambda: self._lost(died=False))
                return
        self._helper.ask(do, answer, event, **fields)

    def _lost(self, died: bool = True) -> None:
        """The helper has ended, perhaps in the middle of an operation: read where everything is, and go back to where it was. Not
        ``died``: none could be started, which passes."""
        self._helper = None
        if not self.known:
            self._deaths += 1
            if self._deaths < HELPERS:
                self._ask("probe", self._probed)
            else:
                self._standing.missing = "the process that talks to NVIDIA's driver ends at once, see the kernel's supervisor.log"
        operation = self._operation
        if operation is None:
            return
        done = f"the process that talks to the driver {f'ended in the middle ({operation.step})' if died else 'could not be started'}"
        if not operation.touched:
            self._finish(operation, DeviceError(f"The kernel's GPU state was not moved: {done}.", reason="helper_lost"), 0)
            return
        operation.helpers += died
        if operation.helpers > HELPERS:
            self._finish(operation, DeviceError(f"{done}, again and again. {RESTART}", fatal=True, occupied=True, reason="state_lost"), 0)
            return
        log.warning("%s; going back", done)
        if died:
            operation.step, operation.since = "read the states back", time.monotonic()
        error = DeviceError(f"The kernel's GPU state was not moved: {done}, and all was undone.", reason="helper_lost")
        self._settle(operation, error)

    def _settle(self, operation: Operation, error: DeviceError) -> None:
        def settled(answer: Fields) -> None:
            if operation is not self._operation:
                return
            if answer.get("reason") == UNFIT:
                self._dismiss()
                self._reactor.call_later(AGAIN_SECONDS, lambda: self._settle(operation, error) if operation is self._operation else None)
            elif answer["ok"]:
                self._finish(operation, error, 0)
            else:
                self._answered(operation, answer)

        self._ask("settle", settled, lambda event: operation.told(event, time.monotonic()), processes=operation.processes,
                  goal=operation.goal, before=operation.before, sizes=operation.sizes, gpus=operation.fields["gpus"],
                  floor=self._floor)  # fmt: skip

    def _once(self, call: Callable[[], None]) -> Callable[[], None]:
        """``call``, the first time, and only while this kernel process lives."""
        calls, life = [call], self._life

        def go() -> None:
            if calls and life == self._life:
                calls.pop()()

        return go

    def _dismiss(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.dismiss()

    def _probed(self, answer: Fields) -> None:
        self._standing.told(answer)
        if self._standing.missing:
            self._dismiss()
        self._changed()
