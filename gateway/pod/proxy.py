"""The supervisor at work: requests in, replies and output out, one kernel process after another.

It carries out what the gate, the lease and the sessions decide; it must never decide anything of theirs itself.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any, Callable, Optional

import zmq

from ..protocol.errors import BadRequest, LaunchError, cause
from ..protocol.model import IDENTITY, KernelState, Spec
from ..protocol.wire import Part, Signer, loads
from .answers import Answers, channel
from .aside import LET_GO, Aside, becoming, exposing
from .back import Back
from .cells.session import Session as PythonCells
from .cells.session import Unknown as UnknownCells
from .child import Child
from .commands import call, magic, obey
from .devices import SuitedDevice
from .front import Front
from .gate import CELL, INFO, PASSING, Abort, Effect, Fail, Gate, Hold, Inform, Request, Send
from .greeting import Greeting
from .idle import IdleWatch
from .interrupting import Interrupting
from .lease import Lease
from .link import Link
from .lost_idle import LostIdle
from .magic import MagicSocket
from .messages import Messages
from .notice import Notice
from .orphans import Orphans
from .owner import watch_owner
from .possession import Possession
from .process import KernelProcess, give_back, identity, wakeup
from .reactor import Reactor
from .requests import REPEATED, Repeats, read, read_cell
from .unanswered import Unanswered
from .waiting import Waiting
from .watchdog import Watchdog

log = logging.getLogger("supervisor")

OWN = [b"S"]  # envelope of the supervisor's own requests
BULK = 4 << 20  # bytes of one message from which on memory is worth giving back to the system
YIELD_SECONDS = 0.5  # after a cell, for the broker to take a GPU that it had asked back meanwhile
GRACE = 3.0  # seconds between SIGTERM and SIGKILL at the end
QUIET = 5.0  # seconds for an idle kernel to let go of what it caches


class Proxy:
    """Everything beside one kernel, wired together on one loop."""

    def __init__(self, folder: Path, spec: Spec, process: KernelProcess) -> None:
        self.folder, self.spec, self.process = folder, spec, process
        self.reactor, self.context = Reactor(), zmq.Context()
        self.signer, self.messages = Signer(spec.key.encode()), Messages()
        self.state = KernelState(kernel_id=spec.kernel_id)
        self.cells = PythonCells() if spec.language == "python" else UnknownCells()
        self.gate = Gate(spec.gpus, self._classify, self._ran)
        magic_socket = str(folder / "magic.sock")
        self._mark = f"ELASTIC_SUPERVISOR={magic_socket}"
        self._repeats = Repeats(self.gate)
        self.device = SuitedDevice(spec, self.reactor, self._mark, self.changed)
        self.aside = Aside(self.reactor, self.messages, lambda parts: self._question("shell", parts))
        self.lease = Lease(
            self.gate, self.device, lambda: self.state.pid, self.apply, self._expose, self._quiet, self._kill, self.changed,
            Possession(spec.lock_dir, f"kernel {spec.display or spec.kernel_id} of {spec.user or 'nobody by name'}", magic_socket),
            self.reactor.call_later,
        )  # fmt: skip
        self.link = Link(self.context, folder, spec, self.messages)
        self.front = Front(self.context, spec, self.signer, self.messages, lambda: self.state.alive, self._request)
        self.link.on_request, self.link.state = self._request, self.snapshot
        self.link.on_order, self.link.on_call = (lambda order: obey(self, order)), (lambda asked, later: call(self, asked, later))
        self._bulky = False  # something large has passed since memory was last given back
        self._watchdog = Watchdog(
            self.reactor, self.gate, spec.stall_seconds, lambda: self.state.pid, self.changed,
            lambda: self._closing and self.state.alive, self._kill,
        )  # fmt: skip
        self.answers = Answers(self.front, self.link, self.messages, self.gate)
        self.waiting = Waiting(
            self.reactor, self.gate, self.messages, self.answers.publish, spec.notice_after,
            lambda: self.link.brokered, lambda: self.device.alarm,
        )  # fmt: skip
        self.notice = Notice(self.messages, self.answers.publish)
        self.magic = MagicSocket(self.reactor, magic_socket, lambda asked, later: magic(self, asked, later))
        self.state.connection = self.front.connection
        self._interrupting = Interrupting(
            self.reactor, self.spec, lambda: self.state.alive and self.gate.ready, self._ask_kernel_info,
            lambda: self._question("control", self.messages.make("interrupt_request", {})),
        )  # fmt: skip
        self._dirty = True
        self._closing = self._restarting = self._shut_down = self._ending = False
        self._clearing = False  # the process has ended, and what it has left on its GPU is being ended
        self._busy_since = time.monotonic()
        self._idle: IdleWatch[tuple[Request, list[Part], list[Part]]] = IdleWatch(time.monotonic())
        self._lost_idle = LostIdle(self._idle, self.messages, self._question, lambda reply: self._give_up(*reply))
        self._unanswered = Unanswered(self.gate, self._idle, self.messages, self._question, self.apply, self.changed)
        self._kernel_started()

    # life

    def announce(self) -> None:
        """Tell the world, in one step, that this kernel is here. From now on signals are for the loop. Raises ``OSError``."""
        self.process.prepare(self.front.connection)
        signals = wakeup(lambda: self.reactor.call_later(0, self._told_to_end))
        self.reactor.add(signals, lambda: os.read(signals, 64))
        Orphans(self.reactor, lambda: self.process.child.pid if self.process.child else None).watch()
        new = self.folder / "supervisor.new"
        new.write_text(json.dumps(identity(self.folder, self.spec, self.link.address, self.front.connection)))
        new.replace(self.folder / "supervisor.json")

    def run(self) -> None:
        """Until ``end``."""
        watch_owner(self.reactor, self.spec, self.end)
        self.front.watch(self.reactor)
        self.link.watch(self.reactor)
        self.reactor.after_each_turn(self._tell)
        self.reactor.call_later(1.0, self._look)
        self._watchdog.watch()
        self.reactor.run()
        self.magic.close()
        self.link.close()
        self.front.close()
        self.back.close()
        self.device.close()
        self.context.term()

    def _told_to_end(self) -> None:
        """By a signal: from the gateway, which has told the notebooks, or from a machine or cluster that takes the kernel away."""
        self.apply(self.gate.gone("The kernel was told to end (SIGTERM). What was in its memory is gone.", asked=False))
        self.end()

    def ends(self, within: float) -> None:
        """Whoever owns the kernel has begun to end it, and may be killed before it is through with that."""
        self.state.ending = True
        self.reactor.call_later(within, self.end)
        self.changed()

    def end(self, grace: float = GRACE) -> None:
        """End the kernel, politely for ``grace`` seconds, and then this process."""
        if self._ending:
            return
        self._ending = True
        self._close()
        child = self.process.child
        if child is None or (not self.state.alive and not self._clearing):
            self.reactor.stop()
        elif child.poll() is not None:
            self._reap()
        else:
            self.device.before_kill(child.pid, lambda: self._terminate(child, grace))

    def _terminate(self, child: Child, grace: float) -> None:
        child.signal(15, group=False)
        self.reactor.call_later(grace, lambda: child.signal(9))
        self.reactor.call_later(grace + 1.0, lambda: None if self._clearing else self.reactor.stop())

    # the kernel process

    def _kernel_started(self) -> None:
        child = self.process.child
        assert child is not None
        self.state.alive, self.state.ready, self.state.exit_code, self.state.pid = True, False, None, child.pid
        self.state.starts = self.process.starts
        self._closing = self._restarting = self._shut_down = False
        self._lost_idle.forget()
        self._killed = ""
        self.back = Back(self.context, self.reactor, self.process.info, self.signer, self._answered, self._published)
        if child.pidfd is not None:
            self.reactor.add(child.pidfd, self._reap)
        self._greeting = Greeting(self.reactor, self._ask_kernel_info, self._kernel_ready)
        self._greeting.begin()
        self.changed()

    def _kernel_ready(self) -> None:
        self.state.ready = True
        self.process.came_up()
        self.process.show()
        # front ends look away from the idle of many a request, kernel_info too
        self.answers.publish(self.messages.status("idle"), "status")
        self.apply(self.gate.kernel_ready())
        self.changed()

    def _reap(self) -> None:
        child = self.process.child
        code = child.poll() if child and self.state.alive else None
        if child is None or code is None:
            return
        if child.pidfd is not None:
            self.reactor.remove(child.pidfd)
        self._greeting.end()
        self.process.came_up()
        late = self.device.freezes
        if not late:
            child.sweep()
        child.close()
        self.back.read_rest()  # its last output and answers
        self.state.alive = self.state.ready = False
        self.state.exit_code = code
        self.state.reason = "" if self._closing and not code else self._killed or child.reason(code)
        log.info("kernel process %d ended: %s", child.pid, self.state.reason or "as asked")
        for answered in self._idle.rest():
            self._give_up(*answered)
        told = f"{self.state.reason}\nWhat was in its memory is gone." if self.state.reason else ""
        self.apply(self.gate.gone(told, asked=self._closing))
        self.aside.forget()
        self._unanswered.forget()
        self.cells.reset()
        self._clearing = True
        self.lease.kernel_gone(lambda: self._cleared(child if late else None))

    def _cleared(self, left: Optional[Child]) -> None:
        """Nothing of the process that ended is on a GPU any more: only now others hear of its end."""
        if left is not None:
            left.sweep()
        self._clearing = False
        self.changed()
        if self._ending:
            self.reactor.stop()

    def respawn(self, argv: Optional[list[str]], env: Optional[dict[str, str]], cwd: Optional[str]) -> None:
        """The next kernel process, with whatever has changed. Raises ``LaunchError``."""
        if self.state.alive:
            raise LaunchError("The old kernel process has not ended yet: end it first.", reason="still_alive")
        self.back.close()
        try:
            self.process.prepare(self.front.connection)
            self.process.respawn(argv, env, cwd)
        except OSError as exc:
            raise LaunchError(f"The kernel could not be started: {cause(exc, self.folder)}. Check its kernelspec.") from exc
        if not self._closing or self._shut_down:  # it is news of a death, so whoever has asked for a restart is not told
            self.answers.publish(self.messages.status("restarting"), "status", once=True)
        self._kernel_started()

    def become(self, whose: dict[str, Any]) -> None:
        """A kernel that was started for nobody is somebody's from now on, and works in their folder. Again for the same: nothing.
        Raises ``BadRequest`` where it is somebody else's."""
        if whose["kernel_id"] == self.spec.kernel_id:
            return
        if not self.spec.unclaimed:
            raise BadRequest(f"this is kernel {self.spec.kernel_id}, which has been claimed")
        before, self.spec.unclaimed = set(self.spec.env), False
        for name in IDENTITY:
            setattr(self.spec, name, whose[name])
        self.state.kernel_id = self.spec.kernel_id
        self.aside.run(becoming(self.spec.env, before - set(self.spec.env), self.process.folder_of_work))
        self.changed()

    # requests of clients

    def _request(self, channel: str, envelope: list[Part], parts: list[Part]) -> None:
        request = read(channel, envelope, parts, self.messages.prefix)
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
            self._touch()
        self.apply(self.gate.request(request))
        self.changed()

    def _repeated(self, request: Request) -> bool:
        """Its sender alone is told: what is shown below a cell is about the first of that id."""
        refused = self._repeats.refuse(request) if request.has_reply else None
        if refused:
            self.answers.refuse(request, REPEATED, refused)
        return refused is not None

    def _control(self, request: Request) -> None:
        if request.msg_type == "interrupt_request":
            self.interrupt()
            self.answers.reply(request, {"status": "ok"})
            return
        if request.msg_type == "shutdown_request":
            content = loads(request.parts[3])
            self._restarting = bool(content.get("restart"))
            self._shut_down = not self._restarting
            self._close()
            self.changed()
            if not self.state.alive:
                self.answers.reply(request, {"status": "ok", "restart": self._restarting})
                return
        if not self.state.alive:
            self.answers.reply(request, {"status": "aborted"})
        elif not self._repeated(request):
            self.apply(self.gate.control(request))

    def interrupt(self) -> None:
        """Stop what runs, and what waits."""
        self.apply(self.gate.interrupt())
        self.changed()

    def signal(self, signum: int, ends: bool) -> None:
        """Any other signal; ``ends``: the kernel's end is asked for by it, as by a shutdown_request."""
        if ends:
            self._close()
        child = self.process.child
        if child is not None and ends:
            self.device.before_kill(child.pid, lambda: child.signal(signum))
        elif child is not None:
            child.signal(signum)

    def _close(self) -> None:
        """Its end was asked for, so nothing goes to it any more, even if it only comes up now."""
        self._closing = True
        self._greeting.end()
        self.apply(self.gate.closing())

    def _kill(self, why: str) -> None:
        """End the kernel process: nothing else helps. It was not asked for, so people are told."""
        self._killed = why
        if self.process.child is not None:
            self.process.child.signal(9)

    def _touch(self) -> None:
        self._busy_since = time.monotonic()

    # effects of the gate

    def apply(self, effects: list[Effect]) -> None:
        """Carry out, in order, what the gate decided."""
        for effect in effects:
            if isinstance(effect, Send):
                self.waiting.ended(effect.request, granted=True)
                self.notice.follow(effect.request)
                self.back.send(channel(effect.request), effect.request.source, effect.request.parts)
            elif isinstance(effect, Hold):
                self.waiting.held(effect.request)
            elif isinstance(effect, Fail):
                self.waiting.ended(effect.request, granted=False)
                self.answers.fail(effect.request, effect.ename, effect.evalue)
            elif isinstance(effect, Inform):
                self.answers.inform(effect.request)
            elif isinstance(effect, Abort):
                self.waiting.ended(effect.request, granted=False)
                self.answers.abort(effect.request)
            else:
                self._interrupting.interrupt(self.process.child)

    def _ask_kernel_info(self) -> None:
        self._question("shell", self.messages.make(INFO, {}))

    def _question(self, channel: str, parts: list[Part]) -> None:
        """To the kernel, from us."""
        self.back.send(channel, OWN, parts)

    # what the kernel says

    def _answered(self, channel: str, envelope: list[Part], parts: list[Part]) -> None:
        parent = loads(parts[1])
        if envelope[:1] == OWN:
            if parent.get("msg_type") == INFO and not self.state.ready:
                self.answers.info = loads(parts[3])
                self.state.session = self.messages.session = str(loads(parts[0]).get("session") or self.messages.session)
                self._greeting.answered()
            self.aside.replied(str(parent.get("msg_id")))
            self._unanswered.probed(str(parent.get("msg_id")))
            return
        if channel == "stdin":
            self.answers.route("stdin", envelope, parts, "input_request")
            return
        request = self.gate.replied(str(parent.get("msg_id")))
        self.changed()
        self._unanswered.replied(request)
        if request is not None and request.msg_type == CELL:
            self._touch()
            if loads(parts[3]).get("status") == "ok":
                self.cells.succeeded(request.ticket)
            if not self._idle.replied(request.msg_id, (request, envelope, parts), time.monotonic()):
                return
        self.answers.route(channel, envelope, parts)

    def _published(self, parts: list[Part], frames: list[bytes]) -> None:
        self._idle.heard(time.monotonic())
        msg_type = loads(parts[0]).get("msg_type", "")
        self._greeting.heard()
        if msg_type == "iopub_welcome" or self.messages.prefix.encode() in bytes(parts[1]):
            msg_id = str(loads(parts[1]).get("msg_id"))
            self._lost_idle.published(msg_id)
            self._unanswered.published(msg_id)
            return  # meant for us: the front says its own welcome
        if msg_type == "execute_input":
            self.apply(self.gate.begins(str(loads(parts[1]).get("msg_id"))))
        said = loads(parts[3]).get("execution_state") if msg_type == "status" else None
        if said == "starting" and self.state.ready:
            return  # out of date: it came after the kernel's first answer, and would be the last that a front end hears
        if said:
            msg_id = str(loads(parts[1]).get("msg_id"))
            self.gate.said(msg_id, str(said))
            reply = self._idle.idle(msg_id, msg_id in self.gate.in_flight) if said == "idle" else None
            if reply is not None:
                self.answers.route("shell", reply[1], reply[2])
        self._bulky = self._bulky or len(parts[3]) > BULK
        self.answers.relay(parts, frames, msg_type)
        if said == "idle":  # of another request than those that wait
            self.answers.still_busy(next(iter(self.gate.held), None))

    # the lease

    def _classify(self, request: Request) -> tuple[bool, str]:
        verdict = self.cells.classify(request.code, request.metadata)
        for expression in request.expressions:
            verdict = verdict if verdict.needs_gpu else self.cells.classify(expression)
        return verdict.needs_gpu, verdict.why

    def _ran(self, request: Request) -> None:
        request.ticket = self.cells.ran(request.code)
        for expression in request.expressions:
            self.cells.ran(expression)

    def _expose(self, visible: list[str]) -> None:
        """Before its first GPU cell, a kernel's environment names exactly the devices that it is to see."""
        code = exposing(visible, self.spec.language)
        if code:
            self.aside.run(code)

    def _quiet(self, then: Callable[[bool], None]) -> None:
        """Before its state is parked, a kernel lets go of what it caches; ``then(False)``: it does something that is no cell."""
        if self.spec.language != "python" or any(request.lane != "control" for request in self.gate.in_flight.values()):
            then(True)
        else:
            self.aside.wait(LET_GO, QUIET, then)

    # what others are told

    def snapshot(self) -> KernelState:
        """The whole truth about this kernel, now."""
        state = self.state
        state.lease = self.lease.state()
        state.in_flight, state.held = len(self.gate.in_flight), len(self.gate.held)
        state.sessions = self.link.sessions.present
        if self.gate.busy:
            self._touch()
        state.idle_seconds = time.monotonic() - self._busy_since
        if not state.alive:
            state.execution_state = "restarting" if self._restarting and not self._ending else "dead"
        elif self._closing:
            state.execution_state = "restarting" if self._restarting else "terminating"
        elif not state.ready:
            state.execution_state = "starting"
        else:
            state.execution_state = "busy" if self.gate.busy else "idle"
        return state

    def changed(self) -> None:
        """Something that others are told has changed."""
        self._dirty = True

    def _tell(self) -> None:
        if self._dirty and not self._clearing:
            self._dirty = False
            self.link.send_state(self.snapshot())

    # now and then

    def _look(self) -> None:
        self.reactor.call_later(1.0, self._look)
        self.lease.keep()
        if not self.link.dialled and not (self.folder / "supervisor.json").exists():
            log.error("%s was removed, so nobody can find this kernel any more: ending it", self.folder)
            self.end()
        if self.process.child is not None and self.process.child.pidfd is None and self.state.alive:
            self._reap()
        if self.gate.yielding and (self.lease.state().idle_for or 0.0) > YIELD_SECONDS:
            self.apply(self.gate.go_on())
        if self._bulky and self.link.sessions.held_bytes < BULK:
            self._bulky = False
            give_back()
        if self.gate.ready:
            self._lost_idle.look(time.monotonic())
            self._unanswered.look(time.monotonic())

    def _give_up(self, request: Request, envelope: list[Part], parts: list[Part]) -> None:
        """A reply whose idle won't come: send both."""
        self.answers.route("shell", envelope, parts)
        self.answers.idle(request)
