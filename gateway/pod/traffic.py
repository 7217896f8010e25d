"""What passes between clients and one kernel: requests in, replies and output out.

It carries out what the gate decides, and must never decide anything of the gate's itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..protocol.wire import Part, loads
from .answers import channel
from .back import Back
from .gate import CELL, INFO, PASSING, Abort, Effect, Fail, Hold, Inform, Request, Send
from .greeting import Greeting
from .idle import IdleWatch
from .interrupting import Interrupting
from .lost_idle import LostIdle
from .requests import REPEATED, Repeats, read, read_cell
from .unanswered import Unanswered

if TYPE_CHECKING:
    from .proxy import Proxy

OWN = [b"S"]  # envelope of the supervisor's own requests
BULK = 4 << 20  # bytes of one message from which on memory is worth giving back to the system


class Traffic:
    """``back``, the sockets of the process that runs, and ``greeting`` come with each process."""

    back: Back
    greeting: Greeting

    def __init__(self, proxy: Proxy) -> None:
        self._proxy, self._state, self._process, self._changed = proxy, proxy.state, proxy.process, proxy.changed
        self._gate, self._cells, self._aside, self._waiting = proxy.gate, proxy.cells, proxy.aside, proxy.waiting
        self._messages, self._answers, self._notice = proxy.messages, proxy.answers, proxy.notice
        self._repeats = Repeats(self._gate)
        self._interrupting = Interrupting(
            proxy.reactor, proxy.spec, lambda: self._state.alive and self._gate.ready, self.ask_kernel_info,
            lambda: self.question("control", self._messages.make("interrupt_request", {})),
        )  # fmt: skip
        self.bulky = False  # something large has passed since memory was last given back
        self.busy_since = time.monotonic()
        self.idle: IdleWatch[tuple[Request, list[Part], list[Part]]] = IdleWatch(time.monotonic())
        self.lost_idle = LostIdle(self.idle, self._messages, self.question, lambda reply: self.give_up(*reply))
        self.unanswered = Unanswered(self._gate, self.idle, self._messages, self.question, self.apply, self._changed)

    # requests of clients

    def request(self, channel: str, envelope: list[Part], parts: list[Part]) -> None:
        """Of a client, to the kernel or to the gate before it."""
        request = read(channel, envelope, parts, self._messages.prefix)
        if channel == "stdin":
            self.back.send("stdin", envelope, parts)
            return
        if channel == "control":
            self._control(request)
            return
        wrong = read_cell(request) if request.msg_type == CELL else ""
        if wrong:
            self.apply([Fail(request, "ValueError", wrong)])
            return
        if self._repeated(request):
            return
        if request.msg_type not in PASSING:
            self.touch()
        self.apply(self._gate.request(request))
        self._changed()

    def _repeated(self, request: Request) -> bool:
        """Its sender alone is told: what is shown below a cell is about the first of that id."""
        refused = self._repeats.refuse(request) if request.has_reply else None
        if refused:
            self._answers.refuse(request, REPEATED, refused)
        return refused is not None

    def _control(self, request: Request) -> None:
        if request.msg_type == "interrupt_request":
            self._proxy.interrupt()
            self._answers.reply(request, {"status": "ok"})
            return
        if request.msg_type == "shutdown_request":
            life = self._proxy.life
            life.restarting = bool(loads(request.parts[3]).get("restart"))
            life.shut_down = not life.restarting
            life.close()
            self._changed()
            if not self._state.alive:
                self._answers.reply(request, {"status": "ok", "restart": life.restarting})
                return
        if not self._state.alive:
            self._answers.reply(request, {"status": "aborted"})
        elif not self._repeated(request):
            self.apply(self._gate.control(request))

    def touch(self) -> None:
        """It is busy, as far as culling goes."""
        self.busy_since = time.monotonic()

    # effects of the gate

    def apply(self, effects: list[Effect]) -> None:
        """Carry out, in order, what the gate decided."""
        for effect in effects:
            if isinstance(effect, Send):
                self._waiting.ended(effect.request, granted=True)
                self._notice.follow(effect.request)
                self.back.send(channel(effect.request), effect.request.source, effect.request.parts)
            elif isinstance(effect, Hold):
                self._waiting.held(effect.request)
            elif isinstance(effect, Fail):
                self._waiting.ended(effect.request, granted=False)
                self._answers.fail(effect.request, effect.ename, effect.evalue)
            elif isinstance(effect, Inform):
                self._answers.inform(effect.request)
            elif isinstance(effect, Abort):
                self._waiting.ended(effect.request, granted=False)
                self._answers.abort(effect.request)
            else:
                self._interrupting.interrupt(self._process.child)

    def ask_kernel_info(self) -> None:
        """Who it is; any answer says that it is there."""
        self.question("shell", self._messages.make(INFO, {}))

    def question(self, channel: str, parts: list[Part]) -> None:
        """To the kernel, from us."""
        self.back.send(channel, OWN, parts)

    # what the kernel says

    def answered(self, channel: str, envelope: list[Part], parts: list[Part]) -> None:
        """A reply of the kernel, or what it wants to be typed in."""
        parent = loads(parts[1])
        if envelope[:1] == OWN:
            if parent.get("msg_type") == INFO and not self._state.ready:
                self._answers.info = loads(parts[3])
                self._state.session = self._messages.session = str(loads(parts[0]).get("session") or self._messages.session)
                self.greeting.answered()
            self._aside.replied(str(parent.get("msg_id")))
            self.unanswered.probed(str(parent.get("msg_id")))
            return
        if channel == "stdin":
            self._answers.route("stdin", envelope, parts, "input_request")
            return
        request = self._gate.replied(str(parent.get("msg_id")))
        self._changed()
        self.unanswered.replied(request)
        if request is not None and request.msg_type == CELL:
            self.touch()
            if loads(parts[3]).get("status") == "ok":
                self._cells.succeeded(request.ticket)
            if not self.idle.replied(request.msg_id, (request, envelope, parts), time.monotonic()):
                return
        self._answers.route(channel, envelope, parts)

    def published(self, parts: list[Part], frames: list[bytes]) -> None:
        """What the kernel tells everybody; ``frames`` as it has signed it."""
        self.idle.heard(time.monotonic())
        msg_type = loads(parts[0]).get("msg_type", "")
        self.greeting.heard()
        if msg_type == "iopub_welcome" or self._messages.prefix.encode() in bytes(parts[1]):
            msg_id = str(loads(parts[1]).get("msg_id"))
            self.lost_idle.published(msg_id)
            self.unanswered.published(msg_id)
            return  # meant for us: the front says its own welcome
        if msg_type == "execute_input":
            self.apply(self._gate.begins(str(loads(parts[1]).get("msg_id"))))
        said = loads(parts[3]).get("execution_state") if msg_type == "status" else None
        if said == "starting" and self._state.ready:
            return  # out of date: it came after the kernel's first answer, and would be the last that a front end hears
        if said:
            msg_id = str(loads(parts[1]).get("msg_id"))
            self._gate.said(msg_id, str(said))
            reply = self.idle.idle(msg_id, msg_id in self._gate.in_flight) if said == "idle" else None
            if reply is not None:
                self._answers.route("shell", reply[1], reply[2])
        self.bulky = self.bulky or len(parts[3]) > BULK
        self._answers.relay(parts, frames, msg_type)
        if said == "idle":  # of another request than those that wait
            self._answers.still_busy(next(iter(self._gate.held), None))

    def give_up(self, request: Request, envelope: list[Part], parts: list[Part]) -> None:
        """A reply whose idle won't come: send both."""
        self._answers.route("shell", envelope, parts)
        self._answers.idle(request)
