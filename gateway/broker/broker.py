"""The loop that acts: what supervisors say becomes events, the lease book decides, its commands become orders.

Everything runs on one event loop and nothing in it waits. It must never decide who gets a GPU, keep a truth that a supervisor
doesn't have, or give an order once it has been stopped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import zmq
from traitlets.config import Config, Configurable

from ..backends import make_backend
from ..backends.base import Backend, Foreign, Supervisor
from ..backends.places import user_name
from ..leases import events
from ..leases.book import Book
from ..leases.events import Command, Event
from ..leases.journal import Journal
from ..leases.placement import best_node
from ..protocol.errors import ElasticError, SupervisorLost
from ..settings import ElasticGateway, Leases, SimulatedGpu
from .adoption import Adoption
from .audience import Audience
from .context import end_context, new_context
from .desk import Desk
from .elsewhere import Elsewhere
from .foreigners import Foreigners
from .guests import Guests
from .lines import Lines
from .link import KernelLink
from .news import POLICY, News
from .orders import Orders
from .patrol import Patrol, log_failure
from .questions import Beside, Questions
from .rules import Rules
from .seat import BROKER, GATEWAY, take
from .snapshot import Wall, snapshot
from .wishes import Wishes

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
        self.running = False
        self.refusal = ""  # why it could not begin, for who asks it all the same
        self.outdated = False  # its configuration files have changed since it started
        self.asked_to_end = asyncio.Event()  # by somebody at the counter
        self._kind, self._who = kind, f"gateway {owner!r} of {user_name()}" if owner else f"a {kind} of {user_name()}"
        self._clock = clock
        self._wall = time.time() - clock()  # for usage, which adds up what lies between two moments
        self._shown_wall = Wall(clock, time.time)
        self._foreigners = Foreigners(self.book)
        self.on_found: Callable[[KernelLink], None] | None = None  # told of our own kernels, again and again
        self.questions = Questions()
        self.beside: list[Beside] = []  # what begins and ends with it
        self.guests = Guests(self.book, self._tell, lambda call: self._loop.call_soon(call), clock)
        self.elsewhere = Elsewhere(self.book, self._tell)
        self._adoption = Adoption(self.backend, ROLES[kind], lambda link: self._take_on([link], []), self._do)
        self._lines = lines = Lines(
            self.book, clock, self._tell, self._do, self.questions.hear, self._adoption.forget,
            lambda gpus, message: self._patrol.taken(gpus, message),
        )  # fmt: skip
        self.links = lines.links
        self._patrol = Patrol(self.backend, self.leases, self.book, lines.readings, self._who, self._tell, clock, lines.obeying, self.links)
        self._orders = Orders(
            self.backend, self.book, lines, self._patrol, self.guests, SimulatedGpu(config=config).costs(),
            ElasticGateway(config=config).visible_devices, self._foreigners, clock, self._tell, self._do,
        )  # fmt: skip
        self._wishes = Wishes(self.book, lines, self.rules)
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
            self.generation = self._lines.generation = await self.backend.generation()
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
            self._foreign_waits(self.backend.waiting_outside)  # who waited already
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
        """Take on kernels that didn't answer before, or came without a word, and see who waits outside. Called every few seconds."""
        self._take_on(await self._dial_all(), [])
        self._tell(self._foreigners.review(self._clock()))
        for link in self.own() if self.on_found else ():
            self.on_found(link)

    async def _look_at_gpus(self) -> None:
        self._tell(await self._patrol.inventory())

    # kernels

    @property
    def known(self) -> set[str]:
        """Those that it speaks with, and those that are being ended."""
        return self._lines.known

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
            raise SupervisorLost(self.refusal or "The broker has been stopped.")
        self.add(supervisor, link)
        return link

    def add(self, supervisor: Supervisor, link: KernelLink) -> None:
        """Lease to the kernel at the other end of an open line."""
        self._tell(self._lines.welcome(supervisor, link))

    def leave(self, kernel_id: str) -> None:
        """Hang up on a kernel that is about to be ended: it waits for nothing any more, and what it holds is free once it is removed."""
        self._lines.leave(kernel_id)

    def remove(self, kernel_id: str) -> None:
        """Forget a kernel, which has ended; its GPUs are free again. No error where it is not known."""
        self._lines.remove(kernel_id)

    def callers(self) -> list[str]:
        """Ids of the kernels of processes that have no gateway."""
        return [kernel_id for kernel_id, link in self.links.items() if not link.supervisor.owner]

    # what people ask

    def snapshot(self) -> dict[str, Any]:
        """``GET /api/gpu``: gpus, leases, queue, generation."""
        alarms = {kernel_id: self.links[kernel_id].silence or each.state.lease.alarm for kernel_id, each in self._lines.readings.items()}
        picture = snapshot(self.book, self.generation, self._clock(), self._shown_wall.offset, alarms)
        return {**picture, "leases": [lease for lease in picture["leases"] if lease["kernel_id"] not in self._foreigners.names]}

    def subscribe(self, callback: Callable[[str, Any], None]) -> Callable[[], None]:
        """Call ``callback(name, value)`` for each change of the snapshot: ``lease``, ``lease_gone``, ``queue``, ``gpus``. Returns
        what ends that."""
        return self._audience.join(callback)

    async def release(self, kernel_id: str) -> None:
        """Take the GPU from an idle kernel. Raises ``ExecutingError`` while it works, ``LeaseError`` where it holds none or keeps it."""
        await self._wishes.release(kernel_id)

    async def hold(self, kernel_id: str, seconds: float) -> None:
        """Leave the GPU with a kernel for so many seconds although it is idle; 0 ends that."""
        await self._wishes.hold(kernel_id, seconds)

    def explain(self, kernel_id: str) -> dict[str, Any]:
        """Which rules hold for a kernel, and why. Raises ``LeaseError`` where it isn't known."""
        return self._wishes.explain(kernel_id)

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
        self._tell(self._foreigners.come_back(self._clock()))

    # events in, commands out

    def _foreign_waits(self, pods: tuple[Foreign, ...]) -> None:
        self._tell(self._foreigners.wait(pods, self._clock()))

    def _tell(self, told: Iterable[Event]) -> None:
        if self.running:
            self._carry_out(self.book.handle_all(told, self._clock()))

    def _carry_out(self, commands: Iterable[Command]) -> None:
        self._orders.carry_out(commands)
        self._arm()
        self._orders.settle()
        self._audience.changed()
        self.news.leases(self._journal.take())

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

    async def _dial_all(self) -> list[KernelLink]:
        return await self._adoption.dial_all(self.known, self._context, self.generation)

    def _take_on(self, links: Iterable[KernelLink], told: list[Event]) -> None:
        for link in links:
            if link.kernel_id in self.known or not self.running:  # registered, or we were stopped, meanwhile
                link.close()
            else:
                told += self._lines.welcome(link.supervisor, link)
        self._tell(told)

    # helpers

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(log_failure)
