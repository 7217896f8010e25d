"""What has happened: every kernel's lease as the events leave it, and who has to be looked at again because of them.

The half of the book's state machine that follows. It must never decide anything: no GPU is given or taken here but by the word of
a supervisor.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..protocol.model import GPU_IN_USE, Phase
from . import events
from .adoption import believed
from .devices import Devices
from .events import Event
from .fairness import Usage
from .journal import FAILED, RESTARTED, Journal
from .levels import Levels
from .meter import Meter
from .policy import NEVER, Policy
from .queue import Queue
from .record import WITH_GPUS, KernelRecord
from .tally import Tally
from .timers import Timers

EXECUTING = "executing"  # the answer to a Park that came too late
EXECUTING_BACKOFF = 1.0  # seconds; only where the end of that cell isn't told


class Ledger:
    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        self.kernels: dict[str, KernelRecord] = {}
        self.usage = Usage(levels.site.usage_half_life)
        self.devices = Devices(self.usage)
        self.waiting = Queue(self.usage, lambda user: self.levels.weight(user), lambda record: self.rules(record).priority)
        self.waiting.ranked = levels.ranked
        self.drained: set[str] = set()  # nodes
        self.elsewhere: dict[str, events.Elsewhere] = {}  # GPUs of users that no lease is for, by holder
        self.tally = Tally()
        self.meter: Meter | None = None  # where somebody wants to know who has had what
        self.journal: Journal | None = None  # where somebody wants to be told of each step
        self.timers = Timers()  # by kernel id, and by ("node", name)
        self.costs = {Phase.PARKING: 0.0, Phase.RESUMING: 0.0}  # seconds that such a move takes, as seen lately
        self._seq = 0
        self._touched: dict[KernelRecord, None] = {}  # kernels to be reviewed
        self._dirty: dict[str, None] = {}  # nodes whose queue is to be looked at
        self._on = {
            events.GpuSeen: self._gpu_seen,
            events.GpuLost: self._gpu_lost,
            events.KernelSeen: self._seen,
            events.KernelGone: self._gone,
            events.Silence: self._silence,
            events.Wanted: self._wanted,
            events.Unwanted: self._unwanted,
            events.Executing: self._executing,
            events.RungTold: self._rung_told,
            events.Resumed: self._resumed,
            events.ResumeFailed: self._resume_failed,
            events.Parked: self._parked,
            events.ParkRefused: self._park_refused,
            events.Denied: self._denied,
            events.Restarted: self._restarted,
            events.ReleaseAsked: self._release_asked,
            events.HoldAsked: self._hold_asked,
            events.NodeDrained: self._node_drained,
            events.Elsewhere: self._elsewhere,
            events.Tick: lambda event, now: None,
        }

    @property
    def policy(self) -> Policy:
        """The site's rules, which hold where no narrower ones do."""
        return self.levels.site

    def rules(self, record: KernelRecord) -> Policy:
        """What holds for one kernel."""
        if record.outside:
            return replace(self.levels.site, queue_timeout=None)
        if self.levels.plain:
            return self.levels.site
        return self.levels.of(record.user, record.name, self.devices.flavor(record))

    def apply(self, event: Event, now: float) -> None:
        """The records follow; events of kernels that are gone, and answers to old orders, change nothing."""
        self._on[type(event)](event, now)

    # inventory

    def _gpu_seen(self, event: events.GpuSeen, now: float) -> None:
        self.devices.see(event.gpu)
        self._inventory_changed()

    def _gpu_lost(self, event: events.GpuLost, now: float) -> None:
        self.devices.lose(event.uuid, event.returns)
        self._inventory_changed()

    def _inventory_changed(self) -> None:
        for record in self.kernels.values():
            record.fixed = self.devices.fixed(record)
            self._touched[record] = None
        self._dirty.update(dict.fromkeys(self.waiting.nodes()))

    def _node_drained(self, event: events.NodeDrained, now: float) -> None:
        (self.drained.add if event.on else self.drained.discard)(event.node)
        self._touched.update(dict.fromkeys(record for record in self.kernels.values() if record.node == event.node))

    def _elsewhere(self, event: events.Elsewhere, now: float) -> None:
        before = self.elsewhere.pop(event.holder, None)
        if event.gpus:
            self.elsewhere[event.holder] = event
        if before is not None:
            self.usage.change(before.user, -before.gpus, now)
        self.usage.change(event.user, event.gpus, now)
        if self.meter is not None:
            self.meter.elsewhere(event, now)
        self._dirty.update(dict.fromkeys(self.waiting.nodes()))

    # kernels come and go

    def _seen(self, event: events.KernelSeen, now: float) -> None:
        old = self.kernels.get(event.kernel_id)
        self._seq += 1
        record, phase, gpus = believed(event, old, self._seq, now)
        if old is not None:
            self._forget(old, now)
        self.kernels[event.kernel_id] = record
        self._touched[record] = None
        self.devices.set_home(record, record.parked, event.home)
        if phase in WITH_GPUS:
            record.phase = phase
            self._touched.update(dict.fromkeys(self.devices.take(record, gpus, now)))
        else:
            self._off(record, record.since)

    def _gone(self, event: events.KernelGone, now: float) -> None:
        record = self.kernels.get(event.kernel_id)
        if record is not None:
            if self.meter is not None:
                self.meter.gone(record, now)
            if self.journal is not None:
                self.journal.gone(record, now)
            self._forget(record, now)

    def _silence(self, event: events.Silence, now: float) -> None:
        record = self.kernels.get(event.kernel_id)
        if record is not None and record.silence != event.why:
            record.silence = event.why
            self._touched[record] = None
            self._stir(record)

    def _restarted(self, event: events.Restarted, now: float) -> None:
        r = self.kernels.get(event.kernel_id)
        if r is not None:
            r.leaving = RESTARTED
            born = events.KernelSeen(r.kernel_id, r.user, r.count, r.node, r.name, r.display, order=event.order, resource=r.resource)
            self._seen(born, now)

    def _forget(self, record: KernelRecord, now: float) -> None:
        if record.phase is Phase.WAITING:
            self._leave(record)
        self._free(record, now)
        if record.home:  # nobody needs it back
            self._dirty[record.node] = None
        self.devices.set_home(record, False)
        self.timers.set(record.kernel_id, NEVER)
        self._touched.pop(record, None)
        del self.kernels[record.kernel_id]

    # cells

    def _wanted(self, event: events.Wanted, now: float) -> None:
        record = self.kernels.get(event.kernel_id)
        if record is not None and not record.wanted:
            self._seq += 1
            record.wanted, record.wanted_since, record.seq = True, now, self._seq
            self._level(record, now)

    def _unwanted(self, event: events.Unwanted, now: float) -> None:
        record = self.kernels.get(event.kernel_id)
        if record is not None and (record.wanted or record.denied):
            record.wanted = record.denied = False
            self._level(record, now)

    def _executing(self, event: events.Executing, now: float) -> None:
        record = self.kernels.get(event.kernel_id)
        if record is None:
            return
        if record.refused == EXECUTING:
            record.refused, record.refused_until = "", -math.inf
            self._touched[record] = None
        if record.executing is not event.running:
            record.executing = event.running
            self._level(record, now)

    def _level(self, record: KernelRecord, now: float) -> None:
        """Something a supervisor says of its cells has changed."""
        if record.phase not in WITH_GPUS:
            self._off(record, now)
        elif record.busy:
            record.idle_since = None
        elif record.idle_since is None:
            record.idle_since = now
        self._touched[record] = None

    def _rung_told(self, event: events.RungTold, now: float) -> None:
        record = self.kernels.get(event.kernel_id)
        if record is None or (record.rung, record.rung_reason) == (event.rung, event.reason):
            return
        record.rung, record.rung_reason = event.rung, event.reason
        record.fixed = self.devices.fixed(record)
        self._touched[record] = None
        if record.phase is Phase.WAITING:  # other GPUs may serve it now, or fewer
            self._dirty[record.node] = None

    # answers

    def _answered(self, event: Event, phase: Phase, now: float) -> KernelRecord | None:
        """Whose newest order this answers, if that is still open."""
        record = self.kernels.get(event.kernel_id)
        if record is None or record.phase is not phase or record.order != event.order:
            return None
        self._touched[record] = None
        return record

    def _resumed(self, event: events.Resumed, now: float) -> None:
        if record := self._answered(event, Phase.RESUMING, now):
            self._learn(record, now)
            self.tally.attaches[self.devices.flavor(record)].add(now - record.since)
            if self.journal is not None:
                self.journal.attached(record, now)
            self.devices.set_home(record, False)
            record.parked_bytes, record.got_at = 0, now
            self._move(record, Phase.HOLDING, now)
            record.idle_since = None if record.busy else now

    def _resume_failed(self, event: events.ResumeFailed, now: float) -> None:
        if record := self._answered(event, Phase.RESUMING, now):
            if event.fatal:
                self.devices.set_home(record, False)
                record.parked_bytes = 0
            if event.reason != GPU_IN_USE:
                record.wanted = False  # the supervisor has ended the cells that were held
            record.leaving = FAILED
            self._free(record, now)
            self._off(record, now)

    def _parked(self, event: events.Parked, now: float) -> None:
        if record := self._answered(event, Phase.PARKING, now):
            self._learn(record, now)
            record.parked_bytes = event.bytes
            self.devices.set_home(record, True, record.gpus)
            self._free(record, now)
            self._off(record, now)

    def _park_refused(self, event: events.ParkRefused, now: float) -> None:
        if record := self._answered(event, Phase.PARKING, now):
            late = event.reason == EXECUTING
            self.tally.refused[event.reason] += 1
            record.leaving = ""
            if self.journal is not None:
                self.journal.kept(record, event.reason)
            record.refused, record.refused_until = event.reason, now + (EXECUTING_BACKOFF if late else self.policy.park_backoff)
            record.release_asked = record.release_asked and late
            self._move(record, Phase.HOLDING, now)
            if late and not record.busy:
                record.idle_since = now

    def _denied(self, event: events.Denied, now: float) -> None:
        record = self.kernels.get(event.kernel_id)
        if record is not None and record.denied and record.order == event.order:
            record.wanted = record.denied = False

    # the user's wishes

    def _release_asked(self, event: events.ReleaseAsked, now: float) -> None:
        if record := self.kernels.get(event.kernel_id):
            record.hold_until = -math.inf
            record.release_asked = record.phase in (Phase.RESUMING, Phase.HOLDING)
            self._touched[record] = None

    def _hold_asked(self, event: events.HoldAsked, now: float) -> None:
        if record := self.kernels.get(event.kernel_id):
            record.hold_until = now + event.seconds if event.seconds > 0 else -math.inf
            record.release_asked = record.release_asked and event.seconds <= 0
            self._touched[record] = None

    # moves

    def _note(self, record: KernelRecord, now: float) -> None:
        """Its GPUs may have changed, or what runs on them."""
        if self.meter is not None:
            self.meter.note(record, now)
        if self.journal is not None:
            self.journal.note(record, now)

    def _move(self, record: KernelRecord, phase: Phase, now: float) -> None:
        record.phase, record.since = phase, now

    def _off(self, record: KernelRecord, now: float) -> None:
        """Where a kernel without GPUs is: in the queue if its cells count."""
        phase = Phase.WAITING if record.wanted and not record.denied else Phase.PARKED if record.parked else Phase.COLD
        if phase is record.phase:
            return
        if record.phase is Phase.WAITING:
            self._leave(record)
        self._move(record, phase, now)
        if phase is Phase.WAITING:
            self.waiting.join(record)
            self._dirty[record.node] = None

    def _leave(self, record: KernelRecord) -> None:
        self.waiting.leave(record)
        record.place = None
        self._dirty[record.node] = None

    def _free(self, record: KernelRecord, now: float) -> None:
        """Its GPUs, if any, are others' now."""
        if record.phase not in WITH_GPUS:
            return
        self._touched.update(dict.fromkeys(self.devices.give(record, now)))
        record.granted, record.release_asked, record.idle_since, record.refused = True, False, None, ""
        record.refused_until = -math.inf
        record.phase = Phase.PARKED if record.parked else Phase.COLD
        record.since = now
        self._stir(record)

    def _stir(self, record: KernelRecord) -> None:
        """Its change may serve somebody: on its node, and under a quota wherever its user waits."""
        self._dirty.update(dict.fromkeys(self.waiting.nodes() if self.levels.limited else (record.node,)))

    def _learn(self, record: KernelRecord, now: float) -> None:
        """How long such a move takes, for the expected wait of others."""
        took, known = now - record.since, self.costs[record.phase]
        self.costs[record.phase] = known + 0.3 * (took - known) if known else took
