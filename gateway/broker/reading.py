"""What a supervisor's states mean to the lease book: levels in, events out. Pure: no clock, no I/O.

A state may leap over what happened between two of them, so nothing here may depend on having seen each one. The supervisor is
believed, always.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..leases import events
from ..leases.events import Deny, Event, Grant, KernelSeen, Park
from ..leases.record import WITH_GPUS, KernelRecord
from ..protocol.model import KernelState, LeaseState, Phase, Rung

HOLD_SLACK = 0.5  # seconds by which a hold's end, told again, may differ
OUT_OF_STEP = frozenset({"not_holding", "not_waiting"})  # answers that mean: the book was wrong about this kernel
CANT_PARK = "exclusive"  # the answer to a Park where the machine turns out not to be able to park at all


@dataclass(frozen=True)
class Identity:
    """What doesn't change about a kernel."""

    kernel_id: str
    user: str
    node: str = "local"
    name: str = ""
    display: str = ""
    resource: str = ""


class Reading:
    """One supervisor's word, state after state, for the broker of one ``generation``."""

    def __init__(self, identity: Identity, generation: int) -> None:
        self.identity, self._generation = identity, generation
        self.state = KernelState()
        self.idle_since: float | None = None  # when the last GPU work ended, None while there is some
        self.used = False  # the driver has seen GPU work that belongs to no cell
        self.silence = ""  # why the supervisor doesn't answer, while it doesn't
        self.order: Grant | Park | Deny | None = None  # the newest one sent
        self.sent_at = 0.0
        self.epoch = 0  # the counter that it was sent with
        self._answered = True
        self._taken = True
        self._hold_until: float | None = None

    @property
    def unanswered(self) -> bool:
        """The newest order was sent and the supervisor hasn't said what became of it."""
        return not self._answered

    @property
    def under_way(self) -> bool:
        """It is known to be doing what it was told."""
        return self.unanswered and self.state.lease.phase in (Phase.RESUMING, Phase.PARKING)

    def sent(self, order: Grant | Park | Deny, now: float) -> None:
        self.order, self.epoch, self.sent_at = order, 0, now
        self._answered = self._taken = False

    def withdraw(self, order: Grant | Park | Deny) -> bool:
        """It was never sent after all; False where a newer one has taken its place."""
        if self.order is not order or self._answered:
            return False
        self._answered = True
        return True

    def seen(self, state: KernelState, now: float) -> list[Event]:
        """A first state, or the first on a new line, or one that contradicts the book: believe it as a whole."""
        self._answered = True
        self._remember(state, now)
        return [self._whole(None)]

    def next(self, state: KernelState, now: float) -> list[Event]:
        """A further state: what it tells that is new, and all levels."""
        before, lease = self.state, state.lease
        asked = lease.release_asked > before.lease.release_asked
        ours = list(lease.order) == [self._generation, self.epoch]
        self._taken = self._taken or ours or (self.order is not None and lease.phase in (Phase.RESUMING, Phase.PARKING))
        replaced = state.starts > before.starts or (before.alive and not state.alive)
        hold = self._hold(lease.hold_for, now)
        self._remember(state, now)
        told: list[Event] = []
        if replaced:
            told.append(self._replaced())
        if ours and not self._answered and lease.answer:
            self._answered = True
            told.append(self._answer())
        told += self.levels()
        if hold is not None:
            told.append(events.HoldAsked(self.identity.kernel_id, hold))
        if asked:
            told.append(events.ReleaseAsked(self.identity.kernel_id))
        return told

    def levels(self) -> list[Event]:
        """What is so now; told again it changes nothing."""
        kernel, lease = self.identity.kernel_id, self.state.lease
        return [
            events.Executing(kernel, lease.executing or self.used),
            events.Wanted(kernel) if lease.wanted else events.Unwanted(kernel),
            events.RungTold(kernel, _rung(lease), lease.rung_reason),
        ]

    def contradicts(self, record: KernelRecord) -> bool:
        """With no order under way, the book and the supervisor differ on what the kernel holds, or on how: an order of an earlier broker
        has no answer for this one."""
        lease = self.state.lease
        holds = lease.phase in WITH_GPUS
        differ = holds and (set(lease.gpus) != set(record.gpus) or lease.phase != record.phase)
        return self._answered and (differ or holds != (record.phase in WITH_GPUS))

    # inside

    def _remember(self, state: KernelState, now: float) -> None:
        self.state, lease = state, state.lease
        if lease.phase != Phase.HOLDING:
            self.used = False
        self.idle_since = None if lease.idle_for is None or self.used else now - lease.idle_for
        self._hold_until = now + lease.hold_for if lease.hold_for > 0 else None

    def _hold(self, hold_for: float, now: float) -> float | None:
        """The user's new wish, None where it is the one known."""
        until, known = now + hold_for, self._hold_until
        if hold_for <= 0:
            return 0.0 if known is not None and known > now + HOLD_SLACK else None
        return hold_for if known is None or abs(until - known) > HOLD_SLACK else None

    def _replaced(self) -> Event:
        """The kernel process has ended, or is another one."""
        newest = self.order.order if self.order else 0
        taken = newest if self._taken else newest - 1
        if self._taken:
            self._answered = True  # what it had begun ended with the process: there will be no answer
        if self.state.lease.phase in (Phase.COLD, Phase.WAITING):
            return events.Restarted(self.identity.kernel_id, order=taken)
        return self._whole(taken)

    def _whole(self, order: int | None) -> KernelSeen:
        me, lease = self.identity, self.state.lease
        return KernelSeen(
            me.kernel_id, me.user, count=lease.count, node=me.node, name=me.name, display=me.display,
            phase=Phase(lease.phase), gpus=tuple(lease.gpus), home=tuple(lease.home), wanted=lease.wanted,
            executing=lease.executing or self.used, phase_for=lease.phase_for, idle_for=lease.idle_for, hold_for=lease.hold_for,
            parked_bytes=lease.parked_bytes, order=order, rung=_rung(lease), rung_reason=lease.rung_reason, silence=self.silence,
            resource=me.resource,
        )  # fmt: skip

    def _answer(self) -> Event:
        """What came of the newest order; where it isn't what such an answer usually means, the whole truth."""
        kernel, lease, order = self.identity.kernel_id, self.state.lease, self.order
        assert order is not None
        done, holds = lease.answer == "done", lease.phase in WITH_GPUS
        if isinstance(order, Deny):
            return events.Denied(kernel, order.order)
        if lease.answer in OUT_OF_STEP or holds is not (done if isinstance(order, Grant) else not done):
            return self._whole(None)
        if isinstance(order, Grant):
            return events.Resumed(kernel, order.order) if done else events.ResumeFailed(kernel, order.order, lease.answer, lease.fatal)
        return events.Parked(kernel, order.order, lease.parked_bytes) if done else events.ParkRefused(kernel, order.order, lease.answer)


def _rung(lease: LeaseState) -> Rung:
    """Where a supervisor doesn't know yet, or is too old to say, its GPUs' word counts alone."""
    return Rung(lease.rung) if lease.rung else Rung.ANYWHERE
