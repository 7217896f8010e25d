"""One look at one node's queue: who is served, who gives way for whom, who goes on waiting and for how long.

Strictly in the fair order, each waiter claims what could serve it: free GPUs, GPUs being left, idle holders that may give way.
A waiter that can be served whole so binds its claims (parking holders for it if need be, and is promised what they leave).
One that can't, binds nothing until it has waited ``reserve_after``: smaller ones pass meanwhile; from then on what it needs is
gathered for it; not for somebody outside, for whom the cluster gathers nothing either. This module must never change the book: it reads,
and says what should be done.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from .devices import Devices
from .ledger import Ledger
from .policy import NEVER, gathers_at, gives_up_at, why_it_yields
from .quota import Quotas, Room
from .record import KernelRecord
from .supply import Supply


@dataclass(slots=True)
class Outcome:
    grants: list[tuple[KernelRecord, tuple[str, ...]]] = field(default_factory=list)
    parks: list[tuple[KernelRecord, str]] = field(default_factory=list)  # with why
    promises: list[KernelRecord] = field(default_factory=list)
    waits: dict[KernelRecord, float] = field(default_factory=dict)  # in order: when it is served, as far as one knows
    rooms: dict[KernelRecord, Room] = field(default_factory=dict)  # of those that are over a quota
    again: float = NEVER  # when the next look could end differently though nothing happens


def choose(node: str, book: Ledger, park_cost: float, now: float, whole: bool) -> Outcome:
    """``whole``: look at all waiters, also where nothing is left to claim (their places are to be told)."""
    devices, queue, rules, site = book.devices, book.waiting, book.rules, book.policy
    out, supply = Outcome(), Supply(node, devices, rules, park_cost, now)
    quotas = Quotas(devices, book.usage, book.levels, rules, now)
    for waiter in queue.order(node, site.turn(), now):
        if not whole and not supply:
            break
        pools = [pool for pool in devices.pools(waiter) if quotas.could(waiter, devices.flavor_of(pool))]
        allowed = [pool for pool in pools if quotas.allows(waiter, devices.flavor_of(pool))]
        if got := _grant(waiter, allowed, devices, supply, out):
            quotas.claimed(waiter, devices.flavor_of(got))
            continue
        out.waits[waiter] = NEVER
        if now >= gives_up_at(rules(waiter), waiter):
            continue
        if allowed or not pools:
            options: list[tuple[frozenset[str], list[KernelRecord]]] = [(pool, []) for pool in supply.reach(allowed)]
        else:
            rooms = [(quotas.room(waiter, devices.flavor_of(pool)), pool) for pool in pools]
            out.rooms[waiter] = rooms[0][0]
            out.waits[waiter] = min(room.ready for room, _ in rooms)
            made = [(pool, room.own) for room, pool in rooms if room.own is not None]
            if not made:
                out.again = min(out.again, out.waits[waiter])
                continue
            reach = supply.reach([pool for pool, _ in made])
            options = [(pool, own) for pool, own in made if own or pool in reach]
            out.waits[waiter] = NEVER
        offers = [(supply.offer(pool, waiter.count, own), pool, own) for pool, own in options]
        if not offers:
            continue
        offer, pool, own = min(offers, key=lambda one: one[0].rank())
        out.waits[waiter] = offer.ready if allowed else max(offer.ready, now + park_cost)
        gathering = waiter.count > 1 and not waiter.outside and (queue.promised(waiter) or now >= gathers_at(site, waiter))
        if offer.whole or gathering:
            for record in own:
                supply.park(record)
            supply.claim(offer, pool, waiter.count)
            parks = [*own, *offer.parks]
            out.parks += [(record, why_it_yields(rules(record), record, now)) for record in parks]
            if parks:
                out.promises.append(waiter)
            quotas.claimed(waiter, devices.flavor_of(pool), parks)
        else:
            supply.expect(offer)
            if waiter.count > 1 and not waiter.outside:
                out.again = min(out.again, gathers_at(site, waiter))
        if not offer.whole:
            out.again = min(out.again, supply.next())
    return out


def _grant(
    waiter: KernelRecord, pools: Collection[frozenset[str]], devices: Devices, supply: Supply, out: Outcome
) -> tuple[str, ...]:  # fmt: skip
    """The GPUs that it gets at once, none where it has to wait."""
    if len(supply.free) < waiter.count:
        return ()
    for pool in pools:
        gpus = tuple(devices.pick(waiter, supply.free, pool))
        if gpus:
            for uuid in gpus:
                del supply.free[uuid]
            out.grants.append((waiter, gpus))
            return gpus
    return ()
