"""One look at one node's queue: who is served, who gives way for whom, who goes on waiting and for how long.

Strictly in the fair order, each waiter claims what could serve it: free GPUs, GPUs being left, idle holders that may give way.
A waiter that can be served whole so binds its claims (parking holders for it if need be, and is promised what they leave).
One that can't, binds nothing until it has waited ``reserve_after``: smaller ones pass meanwhile; from then on what it needs is
gathered for it. This module must never change the book: it reads, and says what should be done.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ..protocol.model import Phase
from .devices import Devices
from .fairness import Usage
from .policy import NEVER, Policy, gathers_at, gives_up_at, why_it_yields, yields_at
from .queue import Queue
from .record import KernelRecord
from .supply import Supply, fewest


@dataclass(slots=True)
class Outcome:
    grants: list[tuple[KernelRecord, tuple[str, ...]]] = field(default_factory=list)
    parks: list[tuple[KernelRecord, str]] = field(default_factory=list)  # with why
    promises: list[KernelRecord] = field(default_factory=list)
    waits: dict[KernelRecord, float] = field(default_factory=dict)  # in order: when it is served, as far as one knows
    again: float = NEVER  # when the next look could end differently though nothing happens


def choose(
    node: str, devices: Devices, queue: Queue, usage: Usage, policy: Policy, park_cost: float, now: float, whole: bool
) -> Outcome:  # fmt: skip
    """``whole``: look at all waiters, also where nothing is left to claim (their places are to be told)."""
    out, supply = Outcome(), Supply(node, devices, policy, park_cost, now)
    quota = _Quota(devices, usage, policy, now)
    for waiter in queue.order(node, policy.turn(), now):
        if not whole and not supply:
            break
        allowed, pools = quota.allows(waiter), devices.pools(waiter)
        if allowed and _grant(waiter, pools, devices, supply, out):
            quota.claimed(waiter)
            continue
        out.waits[waiter] = NEVER
        if now >= gives_up_at(policy, waiter):
            continue
        own = [] if allowed else quota.room(waiter)
        if own is None:
            out.again = min(out.again, quota.next)
            continue
        offers = [(supply.offer(pool, waiter.count, own), pool) for pool in (pools if own else supply.reach(pools))]
        if not offers:
            continue
        offer, pool = min(offers, key=lambda one: one[0].rank())
        out.waits[waiter] = offer.ready if allowed else max(offer.ready, now + park_cost)
        gathering = waiter.count > 1 and (queue.promised(waiter) or now >= gathers_at(policy, waiter))
        if offer.whole or gathering:
            for record in own:
                supply.park(record)
            supply.claim(offer, pool, waiter.count)
            parks = [*own, *offer.parks]
            out.parks += [(record, why_it_yields(policy, record, now)) for record in parks]
            if parks:
                out.promises.append(waiter)
            quota.claimed(waiter, parks)
        else:
            supply.expect(offer)
            if waiter.count > 1:
                out.again = min(out.again, gathers_at(policy, waiter))
        if not offer.whole:
            out.again = min(out.again, supply.next())
    return out


def _grant(waiter: KernelRecord, pools: Collection[frozenset[str]], devices: Devices, supply: Supply, out: Outcome) -> bool:
    if len(supply.free) < waiter.count:
        return False
    for pool in pools:
        gpus = devices.pick(waiter, supply.free, pool)
        if gpus:
            for uuid in gpus:
                del supply.free[uuid]
            out.grants.append((waiter, tuple(gpus)))
            return True
    return False


class _Quota:
    """Users' GPUs as this look goes on. A waiter over its user's quota presses on that user's own idle kernels alone."""

    def __init__(self, devices: Devices, usage: Usage, policy: Policy, now: float) -> None:
        self._devices, self._usage, self._policy, self._now = devices, usage, policy, now
        self._limit = policy.gpus_per_user
        self._more: dict[str, int] = {}  # claimed in this look
        self._leaving: set[KernelRecord] = set()
        self.next = NEVER  # when an own idle kernel will give way

    def _over(self, waiter: KernelRecord) -> int:
        return self._usage.held(waiter.user) + self._more.get(waiter.user, 0) + waiter.count - self._limit

    def allows(self, waiter: KernelRecord) -> bool:
        return self._limit is None or self._over(waiter) <= 0

    def claimed(self, waiter: KernelRecord, parked: Collection[KernelRecord] = ()) -> None:
        self._more[waiter.user] = self._more.get(waiter.user, 0) + waiter.count
        self._leaving.update(parked)

    def room(self, waiter: KernelRecord) -> list[KernelRecord] | None:
        """Which of the user's own idle kernels to park so that the waiter is within quota; None: that can't be now."""
        over, idle = self._over(waiter), []
        for record in self._devices.of_user(waiter.user):
            if record.phase is Phase.PARKING or record in self._leaving:
                over -= len(record.gpus)
            elif record.phase is Phase.HOLDING and not record.busy:
                yields = yields_at(self._policy, record)
                if yields <= self._now:
                    idle.append(record)
                else:
                    self.next = min(self.next, yields)
        idle.sort(key=lambda record: record.idle_since)
        own, gained = fewest(((record, len(record.gpus)) for record in idle), over)
        return own if gained >= over else None
