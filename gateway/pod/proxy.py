"""The supervisor at work: everything beside one kernel, wired together; what others are told of it; what is looked at now and then.

It carries out what the gate, the lease and the sessions decide; it must never decide anything of theirs itself.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any, Callable

import zmq

from ..protocol.errors import BadRequest
from ..protocol.model import IDENTITY, KernelState, Spec
from ..protocol.wire import Signer
from .answers import Answers
from .aside import LET_GO, Aside, becoming, exposing
from .cells.session import Session as PythonCells
from .cells.session import Unknown as UnknownCells
from .commands import call, magic, obey
from .devices import SuitedDevice
from .front import Front
from .gate import Gate, Request
from .lease import Lease
from .life import Life
from .link import Link
from .magic import MagicSocket
from .messages import Messages
from .notice import Notice
from .orphans import Orphans
from .owner import watch_owner
from .possession import Possession
from .process import KernelProcess, give_back, identity, wakeup
from .reactor import Reactor
from .traffic import BULK, Traffic
from .waiting import Waiting
from .watchdog import Watchdog

log = logging.getLogger("supervisor")

YIELD_SECONDS = 0.5  # after a cell, for the broker to take a GPU that it had asked back meanwhile
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
        self.device = SuitedDevice(spec, self.reactor, self._mark, self.changed)
        self.aside = Aside(self.reactor, self.messages, lambda parts: self.traffic.question("shell", parts))
        self.lease = Lease(
            self.gate, self.device, lambda: self.state.pid, lambda effects: self.traffic.apply(effects), self._expose, self._quiet,
            lambda why: self.life.kill(why), self.changed,
            Possession(spec.lock_dir, f"kernel {spec.display or spec.kernel_id} of {spec.user or 'nobody by name'}", magic_socket),
            self.reactor.call_later,
        )  # fmt: skip
        self.link = Link(self.context, folder, spec, self.messages)
        self.front = Front(
            self.context, spec, self.signer, self.messages, lambda: self.state.alive, lambda *message: self.traffic.request(*message)
        )
        self.link.state = self.snapshot
        self.link.on_order, self.link.on_call = (lambda order: obey(self, order)), (lambda asked, later: call(self, asked, later))
        self.answers = Answers(self.front, self.link, self.messages, self.gate)
        self.waiting = Waiting(
            self.reactor, self.gate, self.messages, self.answers.publish, spec.notice_after,
            lambda: self.link.brokered, lambda: self.device.alarm,
        )  # fmt: skip
        self.notice = Notice(self.messages, self.answers.publish)
        self.magic = MagicSocket(self.reactor, magic_socket, lambda asked, later: magic(self, asked, later))
        self.state.connection = self.front.connection
        self.traffic = Traffic(self)
        self.link.on_request = self.traffic.request
        self.life = Life(self)
        self._watchdog = Watchdog(
            self.reactor, self.gate, spec.stall_seconds, lambda: self.state.pid, self.changed,
            lambda: self.life.closing and self.state.alive, self.life.kill,
        )  # fmt: skip
        self._dirty = True
        self.life.begin()

    # life

    def announce(self) -> None:
        """Tell the world, in one step, that this kernel is here. From now on signals are for the loop. Raises ``OSError``."""
        self.process.prepare(self.front.connection)
        signals = wakeup(lambda: self.reactor.call_later(0, self.life.told_to_end))
        self.reactor.add(signals, lambda: os.read(signals, 64))
        Orphans(self.reactor, lambda: self.process.child.pid if self.process.child else None).watch()
        new = self.folder / "supervisor.new"
        new.write_text(json.dumps(identity(self.folder, self.spec, self.link.address, self.front.connection)))
        new.replace(self.folder / "supervisor.json")

    def run(self) -> None:
        """Until its end."""
        watch_owner(self.reactor, self.spec, self.life.end)
        self.front.watch(self.reactor)
        self.link.watch(self.reactor)
        self.reactor.after_each_turn(self._tell)
        self.reactor.call_later(1.0, self._look)
        self._watchdog.watch()
        self.reactor.run()
        self.magic.close()
        self.link.close()
        self.front.close()
        self.traffic.back.close()
        self.device.close()
        self.context.term()

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

    def interrupt(self) -> None:
        """Stop what runs, and what waits."""
        self.traffic.apply(self.gate.interrupt())
        self.changed()

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
        state, life = self.state, self.life
        state.lease = self.lease.state()
        state.in_flight, state.held = len(self.gate.in_flight), len(self.gate.held)
        state.sessions = self.link.sessions.present
        if self.gate.busy:
            self.traffic.touch()
        state.idle_seconds = time.monotonic() - self.traffic.busy_since
        if not state.alive:
            state.execution_state = "restarting" if life.restarting and not life.ending else "dead"
        elif life.closing:
            state.execution_state = "restarting" if life.restarting else "terminating"
        elif not state.ready:
            state.execution_state = "starting"
        else:
            state.execution_state = "busy" if self.gate.busy else "idle"
        return state

    def changed(self) -> None:
        """Something that others are told has changed."""
        self._dirty = True

    def _tell(self) -> None:
        if self._dirty and not self.life.clearing:
            self._dirty = False
            self.link.send_state(self.snapshot())

    # now and then

    def _look(self) -> None:
        self.reactor.call_later(1.0, self._look)
        self.lease.keep()
        if not self.link.dialled and not (self.folder / "supervisor.json").exists():
            log.error("%s was removed, so nobody can find this kernel any more: ending it", self.folder)
            self.life.end()
        if self.process.child is not None and self.process.child.pidfd is None and self.state.alive:
            self.life.reap()
        if self.gate.yielding and (self.lease.state().idle_for or 0.0) > YIELD_SECONDS:
            self.traffic.apply(self.gate.go_on())
        if self.traffic.bulky and self.link.sessions.held_bytes < BULK:
            self.traffic.bulky = False
            give_back()
        if self.gate.ready:
            self.traffic.lost_idle.look(time.monotonic())
            self.traffic.unanswered.look(time.monotonic())
