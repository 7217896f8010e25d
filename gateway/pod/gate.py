"""The gate: which request goes to the kernel now, which waits for a GPU or for the kernel itself, and what runs.

Pure: no clock, no I/O; each method returns the effects to carry out, in order. The order of requests within a shell must never
change, but for those without side effects, which overtake cells that wait. Nothing that was let through is ever taken back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Callable, Optional, Union

from ..protocol.model import Phase
from ..protocol.wire import Part

# Answered from what the kernel knows; they may overtake a cell that waits, as they change nothing.
PASSING = frozenset(
    {"kernel_info_request", "complete_request", "inspect_request", "is_complete_request", "history_request", "comm_info_request"}
)
CELL = "execute_request"
INFO = "kernel_info_request"
BLOCKING = (Phase.PARKING, Phase.PARKED, Phase.RESUMING)  # a call into CUDA doesn't come back
CONTROL = "control"  # the lane of what came on that channel


@dataclass(eq=False)
class Request:
    """One request on its way. ``source`` is where its answers go; ``lane`` the subshell ("" the main shell) or ``CONTROL``."""

    source: Any
    parts: list[Part]
    msg_id: str
    msg_type: str
    lane: str = ""
    code: str = ""  # of a cell
    expressions: tuple[str, ...] = ()  # its user expressions, which the kernel evaluates after it
    ticket: Any = None  # what the analysis wants back once the cell has succeeded
    metadata: Optional[dict[str, Any]] = None
    gpu: bool = False
    why: str = ""  # why it needs a GPU
    stopped: bool = False  # it was interrupted before the kernel began to run it, and has to be again
    order: int = 0  # of those that went to the kernel, which one it was
    heard: bool = False  # the kernel has published something for it
    through: bool = False  # the kernel has published its idle

    @property
    def has_reply(self) -> bool:
        """Comms have none to wait for."""
        return not self.msg_type.startswith("comm_") or self.msg_type == "comm_info_request"


@dataclass(frozen=True)
class Send:
    """Give the request to the kernel."""

    request: Request


@dataclass(frozen=True)
class Hold:
    """The cell waits at the gate for a GPU."""

    request: Request


@dataclass(frozen=True)
class Fail:
    """Answer the request with an error, as the kernel would."""

    request: Request
    ename: str
    evalue: str


@dataclass(frozen=True)
class Inform:
    """Say what kernel it is in its place: it may be blocked."""

    request: Request


@dataclass(frozen=True)
class Abort:
    """Answer the request as aborted: it never ran, because of what happened to one before it."""

    request: Request


@dataclass(frozen=True)
class Signal:
    """Interrupt the kernel process."""


Effect = Union[Send, Hold, Fail, Inform, Abort, Signal]


class Gate:
    """``classify(request)`` says whether (and why) a cell needs a GPU; ``ran(request)`` is called as one goes to the kernel."""

    def __init__(self, count: int, classify: Callable[[Request], tuple[bool, str]], ran: Callable[[Request], None]) -> None:
        self.count = count  # GPUs of a lease; 0: the gate is always open
        self.enabled = True  # False: ``%gpu off``
        self.ready = False  # the kernel answers
        self.rest = Phase.COLD  # the phase but for waiting: COLD, RESUMING, HOLDING, PARKING or PARKED
        self.stalled = False  # something that runs is blocked on the parked GPU
        self.yielding = False  # the GPU is asked back while a cell runs: later ones that need it wait, however soon they come
        self.lost = ""  # why no cell of this kernel process can use a GPU any more
        self.lanes: dict[str, deque[Request]] = {}
        self.in_flight: dict[str, Request] = {}  # in the order they were sent
        self.one_way: dict[str, Request] = {}  # those without a reply that the kernel isn't through with
        self._sent = 0
        self._classify, self._ran = classify, ran

    # what it is asked

    @property
    def open(self) -> bool:
        return (self.rest is Phase.HOLDING and not self.lost) or not self.count or not self.enabled

    @property
    def wanted(self) -> bool:
        """Somebody waits for the GPU."""
        return not self.open and self.ready and not self.lost and (self.stalled or any(lane[0].gpu for lane in self.lanes.values()))

    @property
    def executing(self) -> bool:
        """Something that may use the GPU runs."""
        return any(request.gpu for request in self.in_flight.values())

    @property
    def phase(self) -> Phase:
        return Phase.WAITING if self.wanted and self.rest in (Phase.COLD, Phase.PARKED) else self.rest

    @property
    def held(self) -> list[Request]:
        return [request for lane in self.lanes.values() for request in lane if request.msg_type == CELL]

    @property
    def busy(self) -> bool:
        return bool(self.lanes) or any(r.msg_type == CELL for r in self.in_flight.values())

    def under_way(self, msg_id: str) -> Optional[Request]:
        """The request of this id that is still to be answered."""
        waits = (request for lane in self.lanes.values() for request in lane if request.msg_id == msg_id)
        return self.in_flight.get(msg_id) or next(waits, None)

    @property
    def cell(self) -> Optional[Request]:
        """One that runs, or else one that waits."""
        runs = (request for request in self.in_flight.values() if request.msg_type == CELL and not request.through)
        return next(chain(runs, self.held), None)

    def through(self) -> list[Request]:
        """What the kernel is through with and has not answered so far."""
        return [request for request in self.in_flight.values() if request.through]

    def unheard(self) -> list[Request]:
        """What went to the kernel and was never heard of, where nothing else of its lane runs."""
        running = {request.lane for request in self.in_flight.values() if request.heard}
        return [request for request in self.in_flight.values() if not request.heard and request.lane not in running]

    # what happens

    def request(self, request: Request) -> list[Effect]:
        """A client's message on shell."""
        lane = self.lanes.get(request.lane)
        if request.msg_type == INFO and self.ready and self.rest in BLOCKING and self._busy_with(request.lane):
            return [Inform(request)]
        if not self.ready or lane:
            if self.ready and request.msg_type in PASSING:
                return [self._send(request)]
            self.lanes.setdefault(request.lane, deque()).append(request)
            return [Hold(request)] if self.ready and request.msg_type == CELL else []
        if self._must_wait(request):
            if self.lost:
                return [Fail(request, "DeviceError", self.lost)]
            self.lanes[request.lane] = deque([request])
            return [Hold(request)]
        return [self._send(request)]

    def control(self, request: Request) -> list[Effect]:
        """A client's message on control: never waits, but it is waited for."""
        return [self._send(request)]

    def replied(self, msg_id: str) -> Optional[Request]:
        """The kernel has answered a request; returns it, None if it is none of ours."""
        request = self.in_flight.pop(msg_id, None)
        if request is not None:
            if request.msg_type == CELL:  # which are taken strictly in turn, so that what came before is through
                for before in [each for each in self.one_way.values() if each.lane == request.lane and each.order < request.order]:
                    del self.one_way[before.msg_id]
            self._goes_on()
        return request

    def said(self, msg_id: str, state: str) -> None:
        """The kernel has published a status of a request."""
        request = self.in_flight.get(msg_id)
        if request is not None:
            request.heard, request.through = True, request.through or state == "idle"
        elif state == "idle" and self.one_way.pop(msg_id, None) is not None:
            self._goes_on()

    def sent_before(self, request: Request) -> list[Request]:
        """What was sent on its lane before it, and is not answered yet."""
        return [each for each in self.in_flight.values() if each.lane == request.lane and each.order < request.order]

    def moved(self, rest: Phase) -> list[Effect]:
        """The lease has moved on. HOLDING opens the gate: everything that waits goes through together."""
        self.rest, self.yielding = rest, False
        if rest is Phase.HOLDING:
            if self.stalled:
                for request in self.in_flight.values():
                    request.gpu = True  # what was blocked runs now
            self.stalled = False
        return self._flush()

    def go_on(self) -> list[Effect]:
        """The GPU wasn't taken after all."""
        self.yielding = False
        return self._flush()

    def stall(self) -> None:
        """What runs is blocked on the parked GPU: ask for it."""
        if self.in_flight or self.one_way:
            self.stalled = True

    def switch(self, enabled: bool) -> list[Effect]:
        """``%gpu off`` and ``on``."""
        self.enabled = enabled
        return self._flush()

    def kernel_ready(self) -> list[Effect]:
        self.ready = True
        return self._flush()

    def interrupt(self) -> list[Effect]:
        """Stop: ends what waits, and what runs. Of the cells that wait the first is interrupted, the rest aborted."""
        effects = self._clear(lambda request: Fail(request, "KeyboardInterrupt", "Interrupted while it waited: the cell did not run."))
        if any(request.msg_type not in PASSING for request in self.in_flight.values()) or not effects:
            effects.append(Signal())
        first: dict[str, Request] = {}
        for request in self.in_flight.values():
            if request.msg_type == CELL:
                first.setdefault(request.lane, request).stopped = True
        return effects + self._flush()

    def begins(self, msg_id: str) -> list[Effect]:
        """The kernel begins to run a cell. One that was interrupted on its way is interrupted now: a signal before was nobody's."""
        request = self.in_flight.get(msg_id)
        if request is None:
            return []
        request.heard = True
        return [Signal()] if request.stopped else []

    def denied(self, ename: str, evalue: str) -> list[Effect]:
        """The wait for a GPU can't succeed."""
        self.stalled = False
        return self._clear(lambda request: Fail(request, ename, evalue), only_gpu=True) + self._flush()

    def closing(self) -> list[Effect]:
        """The kernel was asked to end: what waits won't run, what comes from now on waits for the next kernel."""
        effects = self._clear(Abort)
        self.ready = False
        return effects

    def gone(self, evalue: str, asked: bool) -> list[Effect]:
        """The kernel process has ended; unless that was asked for, the oldest cell is told why. All its state went with it."""
        first: Callable[[Request], Effect] = Abort if asked else lambda request: Fail(request, "KernelDied", evalue)
        effects: list[Effect] = []
        for request in sorted(self.in_flight.values(), key=lambda r: r.msg_type != CELL):  # cells first: they carry the reason
            effects.append(Abort(request) if effects else first(request))
        self.in_flight.clear()
        self.one_way.clear()
        if not asked:
            effects += self._clear(Abort if effects else first)
        self.ready = self.stalled = self.yielding = False
        self.lost = ""
        self.rest = Phase.COLD
        return effects

    # inside

    def _busy_with(self, lane: str) -> bool:
        return any(request.lane == lane for request in chain(self.in_flight.values(), self.one_way.values()))

    def _goes_on(self) -> None:
        """The kernel has come through with something, so it isn't blocked, unless something else is."""
        if not self.in_flight and not self.one_way:
            self.stalled = False

    def _must_wait(self, request: Request) -> bool:
        if request.msg_type != CELL or not self.count or not self.enabled:
            return False
        request.gpu, request.why = self._classify(request)
        return request.gpu and (not self.open or self.yielding)

    def _send(self, request: Request) -> Send:
        self._sent += 1
        request.order = self._sent
        if request.has_reply:
            self.in_flight[request.msg_id] = request
        else:
            self.one_way[request.msg_id] = replace(request, parts=[])  # they may be large
        if request.msg_type == CELL:
            self._ran(request)
        return Send(request)

    def _flush(self) -> list[Effect]:
        effects: list[Effect] = []
        if not self.ready:
            return effects
        for name in list(self.lanes):
            lane = self.lanes[name]
            while lane:
                if self._must_wait(lane[0]):
                    if self.lost:
                        effects.append(Fail(lane.popleft(), "DeviceError", self.lost))
                        continue
                    effects += [Hold(request) for request in lane if request.msg_type == CELL]
                    break
                effects.append(self._send(lane.popleft()))
            if not lane:
                del self.lanes[name]
        return effects

    def _clear(self, first: Callable[[Request], Effect], only_gpu: bool = False) -> list[Effect]:
        """End every cell that waits, the first of each lane with ``first``; other messages stay in their order."""
        effects: list[Effect] = []
        for name, lane in list(self.lanes.items()):
            if only_gpu and not lane[0].gpu:
                continue
            cells = [request for request in lane if request.msg_type == CELL]
            effects += [Abort(request) if at else first(request) for at, request in enumerate(cells)]
            rest = deque(request for request in lane if request.msg_type != CELL)
            if rest:
                self.lanes[name] = rest
            else:
                del self.lanes[name]
        return effects
