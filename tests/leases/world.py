"""A small world for the book: supervisors that behave as real ones do, a broker that tells the book what their states say, and
virtual time. ``World(auto=True)`` carries every order out at once; otherwise orders and states travel when the test says so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gateway.leases.book import Book
from gateway.leases.events import (
    Command,
    Denied,
    Deny,
    Event,
    Executing,
    GpuLost,
    GpuSeen,
    Grant,
    HoldAsked,
    KernelGone,
    KernelSeen,
    Park,
    Parked,
    ParkRefused,
    Place,
    ReleaseAsked,
    Resumed,
    ResumeFailed,
    RungTold,
    Tick,
    Unwanted,
    Wanted,
)
from gateway.leases.levels import Levels
from gateway.leases.meter import Meter
from gateway.leases.policy import Policy
from gateway.leases.record import KernelRecord
from gateway.protocol.model import GPU_IN_USE, Gpu, Phase, Rung

OFF = (Phase.COLD, Phase.PARKED)


@dataclass(frozen=True)
class State:
    """A supervisor's whole word, as the link carries it."""

    phase: Phase
    gpus: tuple[str, ...]
    home: tuple[str, ...]
    wanted: bool
    executing: bool
    order: int
    answer: str
    fatal: bool
    starts: int
    release_asked: int
    hold: float
    rung: Rung


class Kernel:
    """One supervisor with its kernel. ``running`` cells are in flight, ``held`` ones at the gate."""

    def __init__(self, kernel_id: str, user: str, count: int, node: str, spec: str = "", resource: str = "") -> None:
        self.kernel_id, self.user, self.count, self.node, self.spec, self.resource = kernel_id, user, count, node, spec, resource
        self.rest = Phase.COLD
        self.gpus: tuple[str, ...] = ()
        self.home: tuple[str, ...] = ()
        self.held = self.running = 0
        self.order, self.answer, self.fatal = 0, "", False
        self.pending = 0  # the order being carried out
        self.starts = self.release_asked = 0
        self.hold = 0.0
        self.rung = Rung.ANYWHERE  # what can be done with its state
        self.inbox: deque[Grant | Park | Deny] = deque()  # orders on their way
        self.outbox: deque[State] = deque()  # states on their way
        self.told: State | None = None  # what the broker knows
        self.sent: Grant | Park | Deny | None = None  # the broker's newest order

    @property
    def phase(self) -> Phase:
        return Phase.WAITING if self.held and self.rest in OFF else self.rest

    def state(self) -> State:
        return State(
            self.phase, self.gpus, self.home, bool(self.held), bool(self.running), self.order, self.answer, self.fatal,
            self.starts, self.release_asked, self.hold, self.rung,
        )  # fmt: skip

    def cell(self) -> None:
        if self.rest is Phase.HOLDING:
            self.running += 1
        else:
            self.held += 1

    def obey(self) -> None:
        """Take the oldest order."""
        order = self.inbox.popleft()
        if isinstance(order, Deny):
            self.held = 0
            self._reply(order.order, "done")
        elif isinstance(order, Grant):
            if self.rest not in OFF:
                self._reply(order.order, "not_waiting")
            elif not self.held:
                self._reply(order.order, "unwanted")
            else:
                self.gpus, self.rest, self.pending = order.gpus, Phase.RESUMING, order.order
        elif self.rest is not Phase.HOLDING:
            self._reply(order.order, "not_holding")
        elif self.running:
            self._reply(order.order, "executing")
        elif self.rung is Rung.EXCLUSIVE:
            self._reply(order.order, "not_supported")
        else:
            self.rest, self.pending = Phase.PARKING, order.order

    def complete(self, failure: str = "") -> None:
        """The device is done with what it was asked for: "" well, "fatal" with the state lost, or with another failure."""
        resuming, self.fatal = self.rest is Phase.RESUMING, failure == "fatal"
        if resuming and self.home and self.rung is not Rung.ANYWHERE and set(self.gpus) != set(self.home):
            failure = failure or "wrong_gpu"
        if resuming and failure:
            self.rest = Phase.PARKED if self.home and not self.fatal else Phase.COLD
            self.gpus, self.held = (), self.held if failure == GPU_IN_USE else 0
            self.home = self.home if self.rest is Phase.PARKED else ()
            self._reply(self.pending, GPU_IN_USE if failure == GPU_IN_USE else "resume_failed")
        elif resuming or failure:
            self._reply(self.pending, failure or "done")
            self.rest, self.home = Phase.HOLDING, ()
            self.running, self.held = self.running + self.held, 0
        else:
            self.rest, self.home, self.gpus = Phase.PARKED, self.gpus, ()
            self._reply(self.pending, "done")

    def restart(self) -> None:
        """A new process; cells that come meanwhile are held."""
        if self.rest in (Phase.RESUMING, Phase.PARKING):
            self._reply(self.pending, "resume_failed" if self.rest is Phase.RESUMING else "done")
        self.rest, self.gpus, self.home = Phase.COLD, (), ()
        self.held = self.running = 0
        self.hold, self.rung = 0.0, Rung.ANYWHERE
        self.starts += 1

    def _reply(self, order: int, answer: str) -> None:
        self.order, self.answer = order, answer


class World:
    def __init__(
        self, *, gpus: int = 1, rung: Rung = Rung.ANYWHERE, nodes: tuple[str, ...] = ("local",), auto: bool = True,
        places: bool = True, policy: Policy | Levels | None = None, **rules: object,
    ) -> None:  # fmt: skip
        self.book = metered(Book(policy or Policy(**rules), places=places))
        self.auto, self.now = auto, 0.0
        self.kernels: dict[str, Kernel] = {}
        self.outsiders: dict[str, list[Command]] = {}  # what the book commands for those who are no kernels
        self.log: list[Command] = []  # every command but places
        self.places: dict[str, Place] = {}
        for node in nodes:
            for i in range(gpus):
                self.tell(GpuSeen(Gpu(f"{node[0]}{i}", node, rung=rung)))

    # the broker

    def tell(self, *happened: Event) -> list[Command]:
        """Give the book these events of one moment and send its orders off."""
        commands = self.book.handle_all(happened, self.now)
        self.book.validate()
        self.carry(commands)
        return commands

    def carry(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Place):
                self.places[command.kernel_id] = command
                continue
            if command.kernel_id in self.outsiders:
                self.outsiders[command.kernel_id].append(command)
                continue
            self.log.append(command)
            kernel, record = self.kernels[command.kernel_id], self.book.kernels[command.kernel_id]
            if isinstance(command, Park):
                assert not record.busy, "a busy kernel is never parked"
                assert record.rung is not Rung.EXCLUSIVE, "nobody is asked to park what can't be"
            elif isinstance(command, Grant):
                self.within_quotas(record)
                assert not any(set(other.gpus) & set(command.gpus) for other in self.kernels.values()), "only free GPUs are granted"
                bound = record.home and record.rung is not Rung.ANYWHERE
                assert not bound or set(command.gpus) == set(record.home), "a state that is bound to its GPUs resumes there"
            kernel.sent = command
            kernel.inbox.append(command)
        if self.auto:
            self.settle()

    def within_quotas(self, record: KernelRecord) -> None:
        """Counted from the records alone, and from what was said alone."""
        levels, book = self.book.levels, self.book
        if not record.gpus:  # its node has none to lease: its cells run without
            return
        flavor = book.gpus[record.gpus[0]].flavor
        most = levels.of(record.user, record.name, flavor).gpus_per_kernel
        assert most is None or record.count <= most, "no kernel is granted more than it may have"
        for said in levels.said("gpus_per_user", record.user, record.name, flavor):
            held = [uuid for other in book.kernels.values() if other.user == record.user for uuid in other.gpus
                    if (said.level != "flavor" or book.gpus[uuid].flavor == said.name)
                    and (said.level != "kernelspec" or other.name == said.name)]  # fmt: skip
            assert said.value is None or len(held) <= said.value, f"nobody is granted more than {said}"

    def says(self, kernel: Kernel) -> None:
        """The supervisor's state is on its way."""
        kernel.outbox.append(kernel.state())
        if self.auto:
            self.settle()

    def settle(self) -> None:
        """Everything on its way arrives and is carried out."""
        while busy := [k for k in self.kernels.values() if k.inbox or k.outbox or k.rest in (Phase.RESUMING, Phase.PARKING)]:
            for kernel in busy:
                if kernel.outbox:
                    self.hear(kernel)
                elif kernel.inbox:
                    kernel.obey()
                    self.says(kernel)
                elif kernel.rest in (Phase.RESUMING, Phase.PARKING):
                    kernel.complete()
                    self.says(kernel)

    def hear(self, kernel: Kernel, newest: bool = False) -> None:
        """The oldest state on its way arrives (or the newest, the others leapt over): tell the book what it means."""
        if not kernel.outbox:
            return
        state = kernel.outbox.popleft()
        while newest and kernel.outbox:
            state = kernel.outbox.popleft()
        old, kernel.told = kernel.told, state
        self.tell(*self.meaning(kernel, old, state))

    def hear_all(self) -> None:
        """The newest state of everybody arrives in one moment."""
        told: list[Event] = []
        for kernel in self.kernels.values():
            while kernel.outbox:
                old, kernel.told = kernel.told, kernel.outbox.popleft()
                told += self.meaning(kernel, old, kernel.told)
        self.tell(*told)

    def meaning(self, kernel: Kernel, old: State | None, state: State) -> list[Event]:
        id_, sent = kernel.kernel_id, kernel.sent
        events: list[Event] = []
        adopted = sent is None and old is not None and old.phase is not state.phase  # an earlier broker's order is done
        if old is None or old.starts != state.starts or adopted:
            events.append(seen(kernel, state, None if old is None else state.order))
        elif sent is not None and state.order == sent.order and old.order != state.order:
            if isinstance(sent, Deny):
                events.append(Denied(id_, sent.order))
            elif isinstance(sent, Grant):
                good = state.answer == "done"
                if state.answer == GPU_IN_USE:
                    events += [GpuLost(uuid) for uuid in sent.gpus]
                events.append(Resumed(id_, sent.order) if good else ResumeFailed(id_, sent.order, state.answer, state.fatal))
            else:
                good = state.answer == "done"
                events.append(Parked(id_, sent.order, 1000) if good else ParkRefused(id_, sent.order, state.answer))
        events.append(Executing(id_, state.executing))
        events.append(Wanted(id_) if state.wanted else Unwanted(id_))
        events.append(RungTold(id_, state.rung))
        if old is not None and old.release_asked != state.release_asked:
            events.append(ReleaseAsked(id_))
        if old is not None and old.hold != state.hold:
            events.append(HoldAsked(id_, state.hold))
        return events

    def reborn(self) -> None:
        """The broker is killed and starts again with an empty book: orders on their way are lost, states are asked for."""
        old, self.book = self.book, metered(Book(self.book.levels, places=self.book._places))
        lost = old.devices.lost
        for kernel in self.kernels.values():
            kernel.inbox.clear()
            kernel.outbox.clear()
            kernel.sent, kernel.order, kernel.pending = None, 0, 0
            kernel.told = kernel.state()
        events: list[Event] = [GpuSeen(gpu) for gpu in old.gpus.values() if gpu.uuid not in lost]
        events += [seen(kernel, kernel.told, None) for kernel in self.kernels.values()]
        self.tell(*events)

    # users

    def kernel(
        self, kernel_id: str, user: str = "", count: int = 1, node: str = "local", spec: str = "", resource: str = ""
    ) -> Kernel:  # fmt: skip
        kernel = self.kernels[kernel_id] = Kernel(kernel_id, user or kernel_id, count, node, spec, resource)
        self.says(kernel)
        return kernel

    def outsider(self, name: str, count: int = 1, node: str = "local", resource: str = "") -> None:
        """Somebody who is no kernel waits."""
        self.outsiders[name] = []
        told = KernelSeen(name, name, count, node, display=name, phase=Phase.WAITING, wanted=True, resource=resource, outside=True)
        self.tell(told)

    def run(self, kernel_id: str) -> None:
        """A cell arrives."""
        self.kernels[kernel_id].cell()
        self.says(self.kernels[kernel_id])

    def done(self, kernel_id: str) -> None:
        """All its cells end."""
        self.kernels[kernel_id].running = 0
        self.says(self.kernels[kernel_id])

    def cancel(self, kernel_id: str) -> None:
        """The held cells are interrupted."""
        self.kernels[kernel_id].held = 0
        self.says(self.kernels[kernel_id])

    def becomes(self, kernel_id: str, rung: Rung) -> None:
        """Its process has done something that changes what can be done with its state."""
        self.kernels[kernel_id].rung = rung
        self.says(self.kernels[kernel_id])

    def ran(self, kernel_id: str) -> None:
        """A short cell, from start to end."""
        self.run(kernel_id)
        assert self.phase(kernel_id) is Phase.HOLDING
        self.done(kernel_id)

    def restart(self, kernel_id: str) -> None:
        self.kernels[kernel_id].restart()
        self.says(self.kernels[kernel_id])

    def die(self, kernel_id: str) -> None:
        del self.kernels[kernel_id]
        self.tell(KernelGone(kernel_id))

    def advance(self, seconds: float) -> None:
        """Time passes; the broker sends a Tick whenever the book says one matters."""
        end = self.now + seconds
        while (at := self.book.deadline(self.now)) is not None and at <= end:
            self.now = max(self.now, at)
            self.tell(Tick())
            after = self.book.deadline(self.now)
            assert after is None or after > self.now, "a Tick settles what was due"
        self.now = end

    # what a test asks

    def phase(self, kernel_id: str) -> Phase:
        return self.book.kernels[kernel_id].phase

    def gpus(self, kernel_id: str) -> tuple[str, ...]:
        return self.book.kernels[kernel_id].gpus

    def queue(self) -> list[str]:
        return [record.kernel_id for record in self.book.queue()]

    def last(self, kind: type) -> Command:
        return [command for command in self.log if isinstance(command, kind)][-1]

    def since(self, mark: int) -> list[Command]:
        return self.log[mark:]


def metered(book: Book) -> Book:
    book.meter = Meter(book.devices)
    return book


def seen(kernel: Kernel, state: State, order: int | None) -> KernelSeen:
    return KernelSeen(
        kernel.kernel_id, kernel.user, kernel.count, kernel.node, kernel.spec, display=f"{kernel.kernel_id}.ipynb", phase=state.phase,
        gpus=state.gpus, home=state.home, wanted=state.wanted, executing=state.executing, hold_for=state.hold, order=order,
        rung=state.rung, resource=kernel.resource,
    )  # fmt: skip
