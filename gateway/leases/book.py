"""The lease book: told what happened, it says what is to be done. The state machine of every kernel's lease.

Events in, commands out, ``now`` beside them; it must never read a clock, act, or let a GPU have two holders by its own doing.
``handle_all`` takes the events of one moment and decides after the last: (1) the records follow the events (ledger), (2) leases
that are over end, (3) each queue that may have changed is looked at once (choose), (4) waits that are over end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..protocol.errors import ElasticError
from ..protocol.model import Gpu, Phase
from . import check, events, places, refusal
from .choose import choose
from .events import Command, Event
from .ledger import Ledger
from .levels import Levels
from .policy import NEVER, Policy, ends_at, gives_up_at
from .record import KernelRecord


class Book(Ledger):
    """``places``: whether waiting kernels are told their place in the queue (a replay has nobody to tell)."""

    def __init__(self, policy: Policy | Levels, *, places: bool = True) -> None:
        super().__init__(policy if isinstance(policy, Levels) else Levels(policy))
        self._places = places
        self._now = -math.inf
        self._order = 0
        self._commands: list[Command] = []

    @property
    def gpus(self) -> Mapping[str, Gpu]:
        """Every GPU ever seen, by UUID; ``devices.lost`` tells which nobody gets."""
        return self.devices.gpus

    def queue(self) -> list[KernelRecord]:
        """The waiting kernels in the order of their turns, node by node."""
        turn = self.policy.turn()
        return [record for node in self.waiting.nodes() for record in self.waiting.order(node, turn, self._now)]

    def deadline(self, now: float) -> float | None:
        """The moment (not after ``now``: at once) at which a Tick changes something; None: no time does."""
        return self.timers.next()

    def ends(self, record: KernelRecord) -> tuple[float, str]:
        """``(moment, why)`` at which an idle holder's lease ends although nobody waits."""
        if record.node in self.drained and not record.fixed and not record.silence and record.idle_since is not None:
            return max(record.idle_since, record.refused_until), "drained"
        return ends_at(self.rules(record), record)

    def validate(self) -> None:
        """Raises ``AssertionError`` with everything that doesn't hold."""
        check.validate(self)

    def handle(self, event: Event, now: float) -> list[Command]:
        """What is to be done, in order, now that this has happened."""
        return self.handle_all((event,), now)

    def handle_all(self, happened: Iterable[Event], now: float) -> list[Command]:
        """The same for several events of one moment; nothing is decided between them."""
        self._now = now
        for event in happened:
            self.apply(event, now)
        return self._settle(now)

    def set_policy(self, policy: Policy | Levels, now: float) -> list[Command]:
        """Other rules from now on, for running leases and waits too."""
        self._now, self.levels = now, policy if isinstance(policy, Levels) else Levels(policy)
        self.waiting.ranked = self.levels.ranked
        self.usage.set_half_life(self.policy.usage_half_life, now)
        self._touched.update(dict.fromkeys(self.kernels.values()))
        self._dirty.update(dict.fromkeys(self.waiting.nodes()))
        return self._settle(now)

    # decisions

    def _settle(self, now: float) -> list[Command]:
        for key in self.timers.due(now):
            if isinstance(key, tuple):
                self._dirty[key[1]] = None
            else:
                self._touched[self.kernels[key]] = None
        waiters = self._review(now)
        self._look(now)
        for record in waiters:
            if record.phase is not Phase.WAITING:
                continue
            at = gives_up_at(self.rules(record), record)
            if at <= now:
                self._deny(record, refusal.too_long(record, self.devices, self.rules(record)), now)
            else:
                self.timers.set(record.kernel_id, at)
        self._look(now)
        commands, self._commands = self._commands, []
        return commands

    def _review(self, now: float) -> list[KernelRecord]:
        """What follows for each touched kernel by itself; returns those that go on waiting."""
        waiters = []
        while self._touched:
            record = self._touched.popitem()[0]
            self._note(record, now)
            self.devices.file(record)
            at = NEVER
            if record.phase is Phase.WAITING:
                if not record.count or (self.devices.bare(record) and not record.parked):
                    self._grant(record, (), now)
                elif record.node in self.drained:
                    self._deny(record, refusal.drained(record), now)
                elif hopeless := refusal.hopeless(record, self.devices, self.levels):
                    self._deny(record, hopeless, now)
                else:
                    waiters.append(record)
                    continue
            elif record.phase is Phase.HOLDING and record.gpus and not record.busy:
                at, why = self.ends(record)
                if at <= now:
                    self._park(record, why, now)
                    continue
                if self._places or not record.fixed:
                    self._stir(record)
            elif self._places:
                self._stir(record)
            self.timers.set(record.kernel_id, at)
        return waiters

    def _look(self, now: float) -> None:
        """Serve the queues that may have changed."""
        while self._dirty:
            node = next(iter(self._dirty))
            again = NEVER
            if self.waiting.length(node):
                outcome = choose(node, self, self.costs[Phase.PARKING], now, self._places)
                for record, gpus in outcome.grants:
                    self._grant(record, gpus, now)
                for record, why in outcome.parks:
                    self._park(record, why, now)
                for record in outcome.promises:
                    self.waiting.promise(record)
                if self._places:
                    self._commands += places.changed(outcome.waits, outcome.rooms, self.devices, self.costs[Phase.RESUMING], now)
                again = outcome.again
            self.timers.set(("node", node), again)
            del self._dirty[node]

    def _grant(self, record: KernelRecord, gpus: tuple[str, ...], now: float) -> None:
        self._leave(record)
        self.devices.take(record, gpus, now)
        if gpus:
            self.tally.waits[self.devices.flavor(record)].add(now - record.wanted_since)
        self._move(record, Phase.RESUMING, now)
        record.leaving = ""
        self._note(record, now)
        self._command(record, events.Grant(record.kernel_id, self._order + 1, gpus))

    def _park(self, record: KernelRecord, why: str, now: float) -> None:
        self.tally.parks[why] += 1
        self._move(record, Phase.PARKING, now)
        record.leaving = why
        self.devices.file(record)
        self._command(record, events.Park(record.kernel_id, self._order + 1, why))

    def _deny(self, record: KernelRecord, why: ElasticError, now: float) -> None:
        self.tally.denied[why.reason] += 1
        if self.journal is not None:
            self.journal.refused(record, why, now)
        record.denied = True
        self._off(record, now)
        self._command(record, events.Deny(record.kernel_id, self._order + 1, why.reason, str(why)))

    def _command(self, record: KernelRecord, command: events.Grant | events.Park | events.Deny) -> None:
        self._order = record.order = command.order
        self.timers.set(record.kernel_id, NEVER)
        self._commands.append(command)
