"""How a kernel's CUDA state leaves its GPUs and comes back: lock all, checkpoint all, restore all, unlock all, undone on failure.

Runs in the helper process, one operation at a time, and waits as long as the driver does. It must never try a restore that may
not fit, as one that runs out of memory is fatal, and never say that a GPU is free before it is.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, Optional

from ...protocol.errors import DeviceError
from ..claims import Claims
from ..headroom import host_headroom
from ..messages import size
from ..processes import Identity, alive, ending, family, has_cuda, kill, on_host
from . import driver
from .cards import RESIDUE, Cards, Memory, needs
from .driver import CHECKPOINTED, RUNNING, Cuda, DriverError
from .nvml import Nvml, NvmlError
from .steps import Lost, Poisoned, Say, Steps

HOST_MARGIN = 1.1  # of the state's size, in host memory
REASONS = {driver.NOT_READY: "gpu_busy", driver.NOT_SUPPORTED: "not_supported", driver.NOT_PERMITTED: "not_permitted"}
UNFIT = "no_device"  # a process in which the driver has failed to start once can't be used any more
STILL_SECONDS = 1.0  # for which a restore may not show though its caller is dead,
SLOW_RESTORE = 2e9  # and bytes a second that it makes at least
SWEEP_SECONDS = 5.0  # for what was killed to end
TROUBLE = (DriverError, DeviceError, Lost, NvmlError, OSError)  # whatever stops a move: it is undone
RESTART = "Save what you need of the kernel's other variables and restart it."


class Parking:
    """``say(fields)`` tells the supervisor what is being done, so that another process can finish it where this one dies halfway.
    ``wanted()``: it is still there; what nobody waits for is undone, as the next kernel's processes look like this one's."""

    def __init__(
        self, cuda: Cuda, nvml: Nvml, say: Say, wanted: Callable[[], bool] = lambda: True, headroom: Callable[[int], int] = host_headroom,
        pause: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic, claims: Optional[Claims] = None,
    ) -> None:  # fmt: skip
        self._claims = claims
        self.cards = Cards(nvml, pause, clock)
        self._cuda, self._say, self._headroom, self._pause, self._clock = cuda, say, headroom, pause, clock
        self._steps = Steps(cuda, say, self._ready, wanted, pause, clock)
        self._initialised = False
        self._before: Memory = {}  # used on the GPUs before the move that may have to be undone; {}: nothing is known
        self._sizes: dict[int, Memory] = {}  # of each process that was checkpointed since

    def scan(self, root: int, mark: str, known: Collection[Identity] = ()) -> tuple[list[Identity], bool]:
        """The kernel's processes with CUDA state, but for those that are ``known``, and whether others have begun with CUDA and hold none
        yet: those are bound to the GPUs that they saw then."""
        found, bound = [], False
        for process in family(root, mark):
            if process in known or not has_cuda(process[0]):
                continue
            try:
                if self._cuda.restore_thread(process[0]) is not None:
                    found.append(process)
                elif self._cuda.state(process[0]) == RUNNING:
                    bound = True
            except DriverError as error:
                if error.code != driver.NOT_INITIALIZED and not self._steps.ends(process):
                    raise
        return found, bound

    def park(self, root: int, mark: str, gpus: Sequence[str], floor: Memory, lock_seconds: float) -> dict[str, Any]:
        """Take the state of all of the kernel's processes off ``gpus``, on which ``floor`` bytes were used before it had any.

        ``lock_seconds``: for GPU work that was submitted and isn't done.
        """
        taken: list[Identity] = []
        self._initialise()
        try:
            # 1. who has state there; does it fit into host memory, and would it fit back
            found, bound = self.scan(root, mark)
            self._before, self._sizes = self.cards.used(gpus), {}
            if found:
                self.cards.check_alone(gpus)
                self._check_room(root, found, floor)
            listed = self.cards.lists([pid for pid, _ in found], gpus) if found else on_host()
            # 2. lock all, and those that have come meanwhile
            while found:
                taken += found
                self._say({"processes": taken, "before": self._before})
                for process in found:
                    self._steps.lock(process, lock_seconds)
                found = self.scan(root, mark, taken)[0]
            # 3. checkpoint all
            self._before = self.cards.used(gpus)
            for process in taken:
                self._checkpoint(process)
            # 4. nothing of the kernel's may be left there
            if self.scan(root, mark, taken)[0]:
                raise DeviceError("A process of the kernel has just begun to use the GPU, so the kernel keeps it.", reason="still_in_use")
            after = self.cards.empty(gpus, floor, lambda: {pid for pid, _ in family(root, mark)}, listed)
        except TROUBLE as exc:
            raise self._undone("parked", exc, taken, RUNNING, gpus, floor) from exc
        finally:
            if self._claims is not None:
                self._claims.leave()
        if len(taken) == 1:  # the driver's accounting may have lagged behind
            known = self._sizes[taken[0][0]]
            self._sizes = {taken[0][0]: {uuid: max(known[uuid], self._before[uuid] - after[uuid]) for uuid in gpus}}
        taken = [process for process in taken if alive(process)]
        sizes = {pid: self._sizes.get(pid, {}) for pid, _ in taken}
        return {"processes": taken, "sizes": sizes, "bytes": _total(sizes), "bound": bound}

    def resume(
        self, processes: Sequence[Identity], sizes: Mapping[int, Memory], home: Sequence[str], gpus: Sequence[str], room_seconds: float
    ) -> dict[str, Any]:  # fmt: skip
        """Bring the state back, from the GPUs that it left (``home``) onto ``gpus``, pair by pair.

        ``room_seconds``: for memory of whoever was there before and has just ended.
        """
        processes = [process for process in processes if alive(process)]
        floor: Memory = {}
        self._initialise()
        try:
            # 1. never a restore that may not fit
            self._before, self._sizes = {}, dict(sizes)
            moves = self._moves(home, gpus) if processes else []
            self._check_free(processes, home, gpus, room_seconds)
            floor = self.cards.used(gpus)
            # 2. restore all, the youngest first
            for process in reversed(processes):
                self._steps.restore(process, moves)
            # 3. read back where it is
            if moves:
                self.cards.landed({pid for pid, _ in processes}, dict(zip(home, gpus)), _by_gpu(sizes), floor)
            # 4. unlock all
            for process in reversed(processes):
                self._steps.bring(process, RUNNING)
        except TROUBLE as exc:
            raise self._undone("resumed", exc, processes, CHECKPOINTED, gpus, floor) from exc
        return {"floor": floor, "bytes": _total(sizes)}

    def settle(
        self, processes: Sequence[Identity], goal: int, before: Memory, sizes: dict[int, Memory], gpus: Sequence[str], floor: Memory
    ) -> None:  # fmt: skip
        """Finish the undo of an operation whose helper has died. Raises ``DeviceError`` where the state is lost."""
        self._initialise()
        self._before, self._sizes = before, sizes
        try:
            self._steps.settle(processes, goal)
            if goal == CHECKPOINTED:
                self._until_still(processes, _total(sizes))
        except Lost as exc:
            raise self._lost("parked" if goal == RUNNING else "resumed", str(exc), gpus, floor) from exc

    def freeze(self, root: int, mark: str, gpus: Sequence[str]) -> None:
        """Before the kernel is killed: a process that was restored and is killed while it runs has hung whole machines
        (NVIDIA/cuda-checkpoint#53), a checkpointed one can be killed. Where that can't be, nothing is lost by killing it anyway."""
        found = self.scan(root, mark)[0]
        if found and self._headroom(root) > sum(self.cards.used(gpus).values()) * HOST_MARGIN:
            try:
                self._steps.settle(found, CHECKPOINTED)
            except Lost:
                pass

    def sweep(self, root: int, mark: str, before: int, freeze: bool) -> None:
        """After the kernel's end: nobody leases for what it has left on the GPU, so that ends too. ``before``: only what was started
        until then (clock ticks since boot), as the next kernel bears the same mark. ``freeze``: as before any kill. Returns once it
        has ended."""
        left = [process for process in self.scan(root, mark)[0] if process[1] <= before]
        if freeze:
            try:
                self._steps.settle(left, CHECKPOINTED)
            except Lost:
                pass
        left += [process for process in family(root, mark) if process[1] <= before and ending(process[0])]
        for process in left:
            kill(process)
        end = self._clock() + SWEEP_SECONDS
        while any(map(alive, left)) and self._clock() < end:
            self._pause(0.01)

    # steps

    def _until_still(self, processes: Sequence[Identity], state: int) -> None:
        """A restore that a helper had begun before it died may go on in the kernel's own process, which is CHECKPOINTED until its end:
        watch for as long as one of ``state`` bytes may take, and go back once more. Raises ``Lost``."""
        end = self._clock() + STILL_SECONDS + state / SLOW_RESTORE
        while self._clock() < end:
            if any(self._steps.state(process) not in (None, CHECKPOINTED) for process in processes):
                self._steps.settle(processes, CHECKPOINTED)
                return
            self._pause(0.02)

    def _initialise(self) -> None:
        """A restore needs the driver loaded: by persistence mode, or by its caller. Raises ``DeviceError`` before anything is done."""
        if self._initialised:
            return
        try:
            if not self.cards.persistent():
                self._cuda.init()
        except (DriverError, NvmlError) as exc:
            raise DeviceError(f"The driver doesn't answer: {exc}. Nothing was moved.", reason=UNFIT) from exc
        self._initialised = True

    def _check_room(self, root: int, processes: Sequence[Identity], floor: Memory) -> None:
        own = self.cards.told({pid for pid, _ in processes}, self._before)
        state = {uuid: max(own[uuid], used - floor.get(uuid, 0)) for uuid, used in self._before.items()}
        need, room = int(sum(state.values()) * HOST_MARGIN), self._headroom(root)
        if need > room or (self._claims is not None and not self._claims.claim(need, lambda: self._headroom(root))):
            raise DeviceError(
                f"Parked, the kernel's GPU state needs {size(need)} of host memory, and {size(room)} are left: it keeps its GPU. Free"
                " memory in the kernel, or have its limit raised.",
                reason="does_not_fit",
            )
        for uuid, amount in state.items():
            if needs(amount) > self.cards.capacity(uuid) - floor.get(uuid, 0):
                raise DeviceError(
                    f"The kernel uses {size(amount)} of the GPU's {size(self.cards.capacity(uuid))}: too much to be sure that it could come"
                    " back, so it keeps its GPU. Free some GPU memory in the kernel.",
                    reason="does_not_fit",
                )

    def _check_free(self, processes: Sequence[Identity], home: Sequence[str], gpus: Sequence[str], seconds: float) -> None:
        total = _by_gpu({pid: self._sizes.get(pid, {}) for pid, _ in processes})
        end = self._clock() + seconds
        for old, new in zip(home, gpus) if processes else ():
            need = needs(total.get(old, 0))
            while (free := self.cards.room(new)) < need:
                if self._clock() > end:
                    raise DeviceError(
                        f"GPU {new} has {size(free)} free, and the kernel's state needs {size(need)} there: it stays parked. Somebody"
                        " uses this GPU without a lease; nvidia-smi shows who.",
                        reason="device_full",
                    )
                self._pause(0.05)

    def _checkpoint(self, process: Identity) -> None:
        told, before = self.cards.told({process[0]}, self._before), self.cards.used(self._before)
        self._steps.checkpoint(process)
        after = self.cards.used(self._before)
        self._sizes[process[0]] = {uuid: max(told[uuid], before[uuid] - after[uuid]) for uuid in before}  # strangers come and go
        self._say({"sizes": self._sizes})

    def _ready(self, process: Identity) -> None:
        """On the way back a restore waits until there is room, and until that is known."""
        while self._before and alive(process):
            try:
                full = self._full(process)
                waits = f"wait for memory that somebody without a lease uses on {', '.join(full)}"
            except NvmlError as exc:
                full, waits = list(self._before), f"wait for the driver to say how much memory is free, which answers: {exc}"
            if not full:
                return
            self._say({"step": waits, "pid": process[0]})
            self._pause(0.5)

    def _full(self, process: Identity) -> list[str]:
        """The GPUs on which a process that was checkpointed has no room now."""
        state = self._sizes.get(process[0])
        if state is None:  # what has left since, less what is known
            known, used = _by_gpu(self._sizes), self.cards.used(self._before)
            state = {uuid: max(0, self._before[uuid] - used[uuid] - known.get(uuid, 0)) for uuid in self._before}
        return [uuid for uuid, amount in state.items() if amount and self.cards.room(uuid) < needs(amount)]

    def _moves(self, home: Sequence[str], gpus: Sequence[str]) -> list[tuple[str, str]]:
        moves = self.cards.moves(home, gpus)
        if moves and self._cuda.version() < driver.REMAP_VERSION:
            raise DeviceError("This driver can't resume a kernel on another GPU than its own: it stays parked.", reason="wrong_gpu")
        return moves

    # failures

    def _undone(
        self, what: str, exc: Exception, processes: Sequence[Identity], goal: int, gpus: Sequence[str], floor: Memory
    ) -> DeviceError:  # fmt: skip
        """Everything back to where it was; returns what to raise."""
        try:
            self._steps.settle(processes, goal)
        except Lost as lost:
            return self._lost(what, str(exc) if str(exc) == str(lost) else f"{exc}; then {lost}", gpus, floor)
        if isinstance(exc, DeviceError):
            return exc
        if isinstance(exc, Poisoned):
            return self._lost(what, str(exc), gpus, floor)
        stays = "it keeps its GPU" if goal == RUNNING else "it stays parked, and its next GPU cell tries again"
        reason = REASONS.get(getattr(exc, "code", 0), "park_failed" if goal == RUNNING else "resume_failed")
        return DeviceError(f"The kernel's GPU state could not be {what}: {exc}; {stays}.", reason=reason)

    def _lost(self, what: str, cause: str, gpus: Sequence[str], floor: Memory) -> DeviceError:
        occupied = True
        try:
            occupied = any(used > floor.get(uuid, 0) + RESIDUE for uuid, used in self.cards.used(gpus).items())
        except NvmlError:
            pass
        message = f"The kernel's GPU state could not be {what} and is lost: {cause}. {RESTART}"
        if occupied:
            message += " It still occupies its GPU, and is ended when somebody else needs that."
        return DeviceError(message, reason="state_lost", fatal=True, occupied=occupied)


def _by_gpu(sizes: Mapping[int, Memory]) -> Memory:
    total: Memory = {}
    for memory in sizes.values():
        for uuid, amount in memory.items():
            total[uuid] = total.get(uuid, 0) + amount
    return total


def _total(sizes: Mapping[int, Memory]) -> int:
    return sum(_by_gpu(sizes).values())
