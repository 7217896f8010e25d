"""The loop that acts: what supervisors say becomes events, the lease book decides, its commands become orders.

Everything runs on one event loop and nothing in it waits. It must never decide who gets a GPU, keep a truth that a supervisor
doesn't have, or give an order once it has been stopped.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import zmq
from traitlets.config import Config, Configurable

from ..backends import make_backend
from ..backends.base import Backend, Foreign, GpusTaken, Supervisor
from ..backends.places import user_name
from ..leases import events
from ..leases.book import Book
from ..leases.events import Command, Deny, Event, Grant, Park, Place
from ..leases.journal import Journal
from ..leases.placement import best_node
from ..leases.refusal import NO_GPU
from ..protocol.errors import ElasticError, ExecutingError, ImpossibleRequest, LeaseError, StaleOrderError, SupervisorLost
from ..protocol.model import GPU_IN_USE, KernelState, Rung
from ..settings import ElasticGateway, Leases, SimulatedGpu
from . import accounts
from .adoption import Adoption
from .audience import Audience
from .context import end_context, new_context
from .desk import Desk
from .foreigners import Foreigners
from .guests import Guests
from .link import KernelLink
from .news import POLICY, News
from .patrol import Patrol, log_failure
from .questions import Beside, Questions
from .reading import CANT_PARK, Identity, Reading
from .rules import Rules
from .seat import BROKER, GATEWAY, take
from .snapshot import Wall, snapshot

log = logging.getLogger(__name__)

ROLES = {GATEWAY: ("owner", "broker", "sessions"), BROKER: ("broker",)}


class Broker:
    """The one broker of its GPUs.

    ``parent`` configures it (``backend`` and ``leases``, where given, count instead). ``owner`` names the gateway whose kernels
    outlive it; "" where kernels end with this process, or (an on-demand broker) are others'. ``kind``: ``GATEWAY`` for any server
    that embeds it, ``BROKER`` for the on-demand process.
    """

    def __init__(
        self,
        parent: Configurable | None = None,
        owner: str = "",
        *,
        kind: str = GATEWAY,
        backend: Backend | None = None,
        leases: Leases | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        config = Config() if parent is None else parent.config
        self.backend = backend or make_backend(config)
        self.leases = leases or Leases(config=config)
        self.owner = owner
        self.rules = Rules(self.leases, lambda levels: self._carry_out(self.book.set_policy(levels, self._clock())))
        self.book = Book(self.rules.levels)
        self.generation = 0
        self.news = News(lambda: self.generation)
        self.book.journal = self._journal = Journal(self.book.devices)
        self.rules.on_change = partial(self.news.tell, POLICY)
        self.links: dict[str, KernelLink] = {}
        self.running = False
        self.outdated = False  # its configuration files have changed since it started
        self.asked_to_end = asyncio.Event()  # by somebody at the counter
        self._kind, self._who = kind, f"gateway {owner!r} of {user_name()}" if owner else f"a {kind} of {user_name()}"
        self._visible, self._clock = ElasticGateway(config=config).visible_devices, clock
        self._costs = SimulatedGpu(config=config).costs()
        self._wall = time.time() - clock()  # for usage, which adds up what lies between two moments
        self._shown_wall = Wall(clock, time.time)
        self._readings: dict[str, Reading] = {}
        self._leaving: set[str] = set()
        self._foreigners = Foreigners(self.book)
        self.on_found: Callable[[KernelLink], None] | None = None  # told of our own kernels, again and again
        self.questions = Questions()
        self.beside: list[Beside] = []  # what begins and ends with it
        self.guests = Guests(self.book, self._tell, lambda call: self._loop.call_soon(call), clock)
        self._dials: dict[str, int] = {}
        self._epoch = 0
        self._patrol = Patrol(self.backend, self.leases, self.book, self._readings, self._who, self._tell, clock, self._obeying, self.links)
        self._adoption = Adoption(self.backend, ROLES[kind], lambda link: self._take_on([link], []), self._do)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._audience = Audience(self.snapshot)
        self._context: zmq.Context[Any] | None = None
        self._desk: Desk | None = None

    # life

    async def start(self) -> None:
        """Become the broker, take the GPUs, find the kernels that run, and begin to act. Raises ``ElasticError`` where that can't be."""
        self._loop = asyncio.get_running_loop()
        if self.backend.places is not None:
            self._desk = Desk(self, await take(self.backend.places, self._kind), self._kind, self._who)
        try:
            self._context = new_context()
            self.generation = await self.backend.generation()
            await self.rules.recall(self.backend)
            await self.backend.tidy()
            links = await self._dial_all()
            held = [event for each in self.beside for event in each.held()]
            ours = {uuid for link in links for uuid in link.state.lease.gpus}.union(*(event.gpus for event in held))
            told = await self._patrol.inventory(ours, {link.kernel_id for link in links})
            self.running = True
            if drained := self.backend.drained:
                log.warning("drained, so no kernel starts and no GPU is leased there: %s", ", ".join(sorted(drained)))
            self._take_on(links, [*told, *held, *(events.NodeDrained(node, True) for node in drained)])
            self.backend.on_foreign, self.backend.best_node = self._foreign_waits, partial(best_node, self.book)
            self.backend.on_freed, owner = (lambda: self._do(self._look_at_gpus())), self.book.devices.owner
            self.backend.on_taken = lambda gpus: self._tell(events.ReleaseAsked(owner[gpu].kernel_id) for gpu in gpus if gpu in owner)
            for each in self.beside:
                await each.start()
            if self._desk is not None:
                await self._desk.open()
        except BaseException:
            await self.stop()
            raise
        self._do(self._patrol.watch_inventory(self.look_for_kernels))
        self._do(self._patrol.watch_use())
        self._do(self.rules.watch())
        foreign = self._patrol.foreign
        log.info("generation %d: %d GPUs, %d kernels", self.generation, len(self.book.gpus) - len(foreign), len(self.links))
        for uuid, holder in foreign.items():
            log.warning("%s can't be leased: it is held by %s", uuid, holder)

    async def stop(self, serving: bool = False) -> None:
        """Act no more and give the GPUs back; kernels go on as they are. ``serving``: whoever asked for this is still to be answered."""
        self.running = False
        if self._timer:
            self._timer.cancel()
        self.questions.stop()
        for each in self.beside:
            await each.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self.links.values():
            link.close()
        self._adoption.close()
        self.backend.unclaim()
        await self.backend.close()
        if self._desk is not None and not serving:
            self._desk.close()
        context, self._context = self._context, None
        if context is not None:
            await end_context(context)

    def own(self) -> list[KernelLink]:
        """The line to each running kernel that this gateway owns, also where nobody has answered so far. None where no name is owned."""
        lines = [*self.links.values(), *self._adoption.silent.values()] if self.owner else []
        return [link for link in lines if link.supervisor.owner == self.owner]

    async def look_for_kernels(self) -> None:
        """Take on kernels that didn't answer before, or came without a word. Called every few seconds."""
        self._take_on(await self._dial_all(), [])
        for link in self.own() if self.on_found else ():
            self.on_found(link)

    async def _look_at_gpus(self) -> None:
        self._tell(await self._patrol.inventory())

    # kernels

    @property
    def known(self) -> set[str]:
        """Those that it speaks with, and those that are being ended."""
        return {*self.links, *self._leaving}

    async def dial(self, supervisor: Supervisor) -> KernelLink:
        """Open a line to a supervisor and lease to its kernel from now on. Raises ``SupervisorLost``, ``VersionError``."""
        known = self.links.get(supervisor.kernel_id)
        if known is not None and not known.gone:
            return known
        link = KernelLink(supervisor, self._context)
        await link.open(ROLES[self._kind], self.generation)
        known = self.links.get(supervisor.kernel_id)
        if known is not None and not known.gone:  # dialled twice at once
            link.close()
            return known
        if not self.running:
            link.close()
            raise SupervisorLost("The broker has been stopped.")
        self.add(supervisor, link)
        return link

    def add(self, supervisor: Supervisor, link: KernelLink) -> None:
        """Lease to the kernel at the other end of an open line."""
        self._tell(self._welcome(supervisor, link))

    def leave(self, kernel_id: str) -> None:
        """Hang up on a kernel that is about to be ended: it waits for nothing any more, and what it holds is free once it is removed."""
        self._leaving.add(kernel_id)
        self._adoption.forget(kernel_id)
        link = self.links.pop(kernel_id, None)
        if link is not None:
            link.close()
        self._readings.pop(kernel_id, None)
        record = self.book.kernels.get(kernel_id)
        if record is not None and not record.gpus:
            self._tell([events.KernelGone(kernel_id)])

    def remove(self, kernel_id: str) -> None:
        """Forget a kernel, which has ended; its GPUs are free again. No error where it is not known."""
        self.leave(kernel_id)
        self._leaving.discard(kernel_id)
        if kernel_id in self.book.kernels:
            self._tell([events.KernelGone(kernel_id)])

    def callers(self) -> list[str]:
        """Ids of the kernels of processes that have no gateway."""
        return [kernel_id for kernel_id, link in self.links.items() if not link.supervisor.owner]

    # what people ask

    def snapshot(self) -> dict[str, Any]:
        """``GET /api/gpu``: gpus, leases, queue, generation."""
        alarms = {kernel_id: self.links[kernel_id].silence or each.state.lease.alarm for kernel_id, each in self._readings.items()}
        picture = snapshot(self.book, self.generation, self._clock(), self._shown_wall.offset, alarms)
        return {**picture, "leases": [lease for lease in picture["leases"] if lease["kernel_id"] not in self._foreigners.names]}

    def subscribe(self, callback: Callable[[str, Any], None]) -> Callable[[], None]:
        """Call ``callback(name, value)`` for each change of the snapshot: ``lease``, ``lease_gone``, ``queue``, ``gpus``. Returns
        what ends that."""
        return self._audience.join(callback)

    async def release(self, kernel_id: str) -> None:
        """Take the GPU from an idle kernel. Raises ``ExecutingError`` while it works, ``LeaseError`` where it holds none or keeps it."""
        link = self._link(kernel_id)
        record = self.book.kernels[kernel_id]
        if record.executing:
            raise ExecutingError("A cell is running on the GPU: interrupt it, or wait until it ends, and release the GPU then.")
        rung, why = self.book.devices.rung(record)
        if record.gpus and rung is Rung.EXCLUSIVE:
            raise LeaseError(
                f"This kernel keeps its GPU until it ends{f' ({why})' if why else ''}: restart it to free the GPU.", reason=CANT_PARK
            )
        await _call(link, "release")

    async def hold(self, kernel_id: str, seconds: float) -> None:
        """Leave the GPU with a kernel for so many seconds although it is idle; 0 ends that."""
        await _call(self._link(kernel_id), "hold", seconds=seconds)

    def drain(self, node: str, on: bool) -> None:
        """Let cells on a node end, take its GPUs back, and let nothing new begin there; or (``on`` False) end that. Raises
        ``ElasticError`` where no node is called so."""
        drained = self.book.drained
        nodes = {each.node for each in (*self.book.gpus.values(), *self.book.kernels.values())} | drained
        nodes |= set() if self.backend.remote else {Supervisor.node}
        if node not in nodes:
            known = ", ".join(sorted(nodes)) or "none yet"
            raise ElasticError(f"No node with kernels or GPUs is called {node[:80]!r}. There are: {known}.", reason="no_such_node")
        self.backend.drain(drained | {node} if on else drained - {node})
        log.warning("node %s is %s", node, "drained" if on else "drained no longer")
        self._tell([events.NodeDrained(node, on), *self._foreigners.leave()])
        self._tell(self._foreigners.come_back())

    def explain(self, kernel_id: str) -> dict[str, Any]:
        """Which rules hold for a kernel, and why. Raises ``LeaseError`` where it isn't known."""
        self._link(kernel_id)
        record = self.book.kernels[kernel_id]
        return self.rules.explain(record, self.book.devices.flavor(record))

    # events in

    def _welcome(self, supervisor: Supervisor, link: KernelLink) -> list[Event]:
        kernel_id = supervisor.kernel_id
        reading = Reading(
            Identity(kernel_id, supervisor.user, supervisor.node, supervisor.name, supervisor.display), self.generation
        )  # fmt: skip
        self._leaving.discard(kernel_id)
        self.links[kernel_id], self._readings[kernel_id], self._dials[kernel_id] = link, reading, link.dials
        link.on_ask = self.questions.hear
        link.on_state(self._heard)
        link.on_lost(self._lost)
        link.on_silent(self._silent)
        link.on_refused(self._refused)
        return reading.seen(link.state, self._clock())

    def _heard(self, link: KernelLink, state: KernelState) -> None:
        reading = self._readings.get(link.kernel_id)
        if reading is None or self.links.get(link.kernel_id) is not link:
            return
        now = self._clock()
        if link.dials != self._dials[link.kernel_id]:
            self._dials[link.kernel_id] = link.dials
            told = reading.seen(state, now)
        else:
            told = reading.next(state, now)
        if state.lease.answer == CANT_PARK and any(isinstance(event, events.ParkRefused) for event in told):
            told = [*self._exclusive(state), *told]
        if any(isinstance(event, events.ResumeFailed) and event.reason == GPU_IN_USE for event in told):
            told = [*self._in_use(reading, state), *told]
        self._tell(told)
        record = self.book.kernels.get(link.kernel_id)
        if record is not None and reading.contradicts(record):
            log.warning("kernel %s: the book said %s, its supervisor %s", link.kernel_id, record.phase, state.lease.phase)
            self._tell(reading.seen(state, now))

    def _silent(self, link: KernelLink, why: str) -> None:
        reading = self._readings.get(link.kernel_id)
        if reading is not None and self.links.get(link.kernel_id) is link:
            reading.silence = why
            self._tell([events.Silence(link.kernel_id, why)])

    def _lost(self, link: KernelLink, reason: str) -> None:
        if self.links.get(link.kernel_id) is link:
            log.info("kernel %s: %s", link.kernel_id, reason)
            self.leave(link.kernel_id)
            self._do(self._clear(link))

    async def _clear(self, link: KernelLink) -> None:
        """Its GPU is somebody else's once nothing that its kernel has started is on it."""
        try:
            await link.supervisor.clear()
        finally:
            if link.kernel_id in self._leaving:  # else it has been started again
                self.remove(link.kernel_id)

    def _refused(self, link: KernelLink, said: dict[str, Any]) -> None:
        if said["reason"] != StaleOrderError.reason or self.links.get(link.kernel_id) is not link:
            return
        if self._readings.pop(link.kernel_id, None) is not None:
            log.warning("kernel %s obeys a newer broker now", link.kernel_id)
            self._tell([events.KernelGone(link.kernel_id)])

    def _exclusive(self, state: KernelState) -> list[Event]:
        gpus = (self.book.gpus.get(uuid) for uuid in state.lease.gpus)
        return [events.GpuSeen(replace(gpu, rung=Rung.EXCLUSIVE, reason=state.lease.answer_message)) for gpu in gpus if gpu is not None]

    def _foreign_waits(self, pods: tuple[Foreign, ...]) -> None:
        self._tell(self._foreigners.wait(pods))

    def _in_use(self, reading: Reading, state: KernelState) -> list[Event]:
        """A kernel that we can't see is on the GPU that we granted."""
        log.warning("kernel %s could not have its GPU: %s", state.kernel_id, state.lease.answer_message)
        return self._patrol.taken(reading.order.gpus if isinstance(reading.order, Grant) else (), state.lease.answer_message)

    def _tell(self, told: Iterable[Event]) -> None:
        if self.running:
            self._carry_out(self.book.handle_all(told, self._clock()))

    # commands out

    def _carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            link, reading = self.links.get(command.kernel_id), self._readings.get(command.kernel_id)
            if link is None or reading is None:
                self.guests.obey(command)
                continue
            if isinstance(command, Place):
                holders = command.holders or tuple(dict.fromkeys(self._patrol.foreign.values()))
                told = {"position": command.position, "of": command.of, "expected": command.expected, "quota": command.quota}
                self._order(link, "queue", holders=holders, **told)
                continue
            reading.sent(command, self._clock())
            if isinstance(command, Grant) and command.gpus and not self.backend.direct:
                reading.sent_at = math.inf
                self._do(self._acquire(link, reading, command))
            elif isinstance(command, Grant) and self.backend.remote and self.book.kernels[command.kernel_id].count:
                self._order(link, "deny", reason=ImpossibleRequest.reason, message=NO_GPU.format(node=reading.identity.node))
            elif isinstance(command, Grant):
                self._order(link, "grant", gpus=command.gpus, **self._about(command.gpus))
            elif isinstance(command, Deny):
                self._order(link, "deny", reason=command.reason, message=self._why(command))
            elif self._patrol.may_be_used(reading):
                self._do(self._park_unless_used(link, reading, command))
            else:
                self._order(link, "park", why=command.why)
        self._arm()
        self._settle()
        self._audience.changed()
        self.news.leases(self._journal.take())

    def _order(self, link: KernelLink, do: str, **fields: Any) -> None:
        self._epoch += 1
        if do != "queue":
            self._readings[link.kernel_id].epoch = self._epoch
        link.order(do, (self.generation, self._epoch), **fields)

    def _about(self, leased: tuple[str, ...]) -> dict[str, Any]:
        """What a supervisor is told with these: CUDA_VISIBLE_DEVICES; what they cost to pretend, None where they are real; where they
        are locked. Whoever started the kernel may know nothing of our configuration."""
        others = self.book.gpus if self._visible == "all" else ()
        simulated = any(self.book.gpus[uuid].simulated for uuid in leased if uuid in self.book.gpus)
        return {
            "visible": [*leased, *(uuid for uuid in others if uuid not in leased)],
            "simulated": self._costs if simulated else None,
            "lock_dir": self.backend.lock_dir,
        }

    def _why(self, deny: Deny) -> str:
        if deny.reason == ImpossibleRequest.reason and self._patrol.foreign:
            theirs = ", ".join(f"{uuid} by {who}" for uuid, who in self._patrol.foreign.items())
            return f"{deny.message} Held by others: {theirs}."
        return deny.message

    def _arm(self) -> None:
        now = self._clock()
        deadline = self.book.deadline(now)
        if self._timer:
            self._timer.cancel()
        self._timer = None if deadline is None or not self.running else self._loop.call_later(max(0.0, deadline - now), self.tick)

    def tick(self) -> None:
        """Time has passed: what the timer calls when something in the book is due."""
        self._timer = None
        self._tell([events.Tick()])

    async def _acquire(self, link: KernelLink, reading: Reading, grant: Grant) -> None:
        """Where GPUs are accounted for elsewhere, the kernel is told once they are its own there, too."""
        try:
            devices = await self.backend.acquire(link.supervisor, grant.gpus)
        except GpusTaken as exc:
            if reading.withdraw(grant) and self.links.get(link.kernel_id) is link:
                refused = events.ResumeFailed(link.kernel_id, grant.order, GPU_IN_USE)
                self._tell([*self._patrol.taken(exc.gpus, str(exc)), refused, *reading.levels()])
            return
        if reading.order is grant and reading.unanswered and self.links.get(link.kernel_id) is link:
            reading.sent_at = self._clock()
            self._order(link, "grant", gpus=grant.gpus, **self._about(grant.gpus), devices=devices)
        else:  # it has ended, or restarted, meanwhile
            self._settle()

    def _settle(self) -> None:
        if self.backend.direct:  # nothing is accounted for elsewhere, and this is asked with each word of each kernel
            return
        held = accounts.leases(self.book, self._foreigners.names)
        self.backend.settle(held, self._obeying(), accounts.waiting(self.book), accounts.homes(self.book))

    def _obeying(self) -> set[str]:
        """The known kernels without those that obey a newer broker: what they have is not ours to give back."""
        return {*self._readings, *self._leaving}

    async def _park_unless_used(self, link: KernelLink, reading: Reading, park: Park) -> None:
        """A training thread goes on after its cell: that counts as executing."""
        if await self._patrol.in_use(reading):
            if reading.withdraw(park):
                self._patrol.set_used(reading, True, events.ParkRefused(link.kernel_id, park.order, "executing"))
        elif reading.order is park and self.links.get(link.kernel_id) is link:
            self._order(link, "park", why=park.why)

    async def _dial_all(self) -> list[KernelLink]:
        return await self._adoption.dial_all(self.known, self._context, self.generation)

    def _take_on(self, links: Iterable[KernelLink], told: list[Event]) -> None:
        for link in links:
            if link.kernel_id in self.known or not self.running:  # registered, or we were stopped, meanwhile
                link.close()
            else:
                told += self._welcome(link.supervisor, link)
        self._tell(told)

    # helpers

    def _link(self, kernel_id: str) -> KernelLink:
        link = self.links.get(kernel_id)
        if link is None or kernel_id not in self.book.kernels:
            raise LeaseError(f"There is no kernel {kernel_id} here, or it leases nothing here.", reason="no_such_kernel")
        return link

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(log_failure)


async def _call(link: KernelLink, do: str, **fields: Any) -> None:
    """What the supervisor refuses for a reason of its own is about the lease."""
    try:
        await link.call(do, **fields)
    except ElasticError as exc:
        if type(exc) is not ElasticError:
            raise
        raise LeaseError(str(exc), reason=exc.reason) from None
