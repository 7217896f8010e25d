"""The GPUs of one node as one look at its queue finds them: free, being left, and held by kernels that could give way.

What one waiter claims is gone for those behind it. It must never know who waits, nor change a record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from .devices import Devices
from .policy import NEVER, Policy, ends_at, yields_at
from .record import KernelRecord


@dataclass(frozen=True, slots=True)
class Offer:
    """How one pool could serve one waiter."""

    free: tuple[str, ...]
    coming: tuple[str, ...]
    parks: tuple[KernelRecord, ...]  # idle holders that may be parked now
    later: tuple[KernelRecord, ...]  # idle holders whose minimum or asked hold is not over
    whole: bool  # without ``later`` it is enough
    ready: float  # when, as far as one knows

    def rank(self) -> tuple[bool, float, int]:
        return not self.whole, self.ready, len(self.parks)


def fewest(holders: Iterable[tuple[KernelRecord, int]], missing: int) -> tuple[list[KernelRecord], int]:
    """Of ``(holder, GPUs gained)``, longest idle first: those to park to gain ``missing``, none without need; and the gain."""
    chosen, gained = [], 0
    for record, gain in holders:
        if gain:
            chosen.append((record, gain))
            gained += gain
        if gained >= missing:
            break
    for one in reversed(chosen[:]):
        if gained - one[1] >= missing:
            chosen.remove(one)
            gained -= one[1]
    return [record for record, _ in chosen], gained


class Supply:
    """``park_cost``: seconds that parking takes, as seen so far. Holders are looked at only once free GPUs don't do."""

    def __init__(self, node: str, devices: Devices, rules: Callable[[KernelRecord], Policy], park_cost: float, now: float) -> None:
        self._node, self._devices, self._rules, self._cost, self._now = node, devices, rules, park_cost, now
        self.free = dict(devices.free(node))
        self._coming: dict[str, float] = {}  # the GPUs being left, and when each will be free
        self._idle: dict[KernelRecord, float] = {}  # the holders that could give way, longest idle first, and when each may be made to
        self._next = NEVER
        self._looked = False
        self._within: set[str] = set()  # all GPUs of the three, when the look began

    def _look(self) -> None:
        if self._looked:
            return
        self._looked = True
        for record in self._devices.leaving(self._node):
            if not record.silence:  # else nobody knows when it is done
                self._leaves(self._coming, record, record.since)
        for record in sorted(self._devices.idle(self._node), key=lambda record: record.idle_since):
            at = self._idle[record] = yields_at(self._rules(record), record)
            if self._now < at < self._next:
                self._next = at
        self._within.update(self.free, self._coming, *map(self._devices.owned, self._idle))

    def next(self) -> float:
        """When more could be had though nothing happens."""
        self._look()
        return self._next

    def __bool__(self) -> bool:
        if self.free:
            return True
        self._look()
        return bool(self._coming or self._idle)

    def reach(self, pools: Iterable[frozenset[str]]) -> list[frozenset[str]]:
        """Those of which something can be had; where that is but free GPUs, which don't do, the first of them is as good as any."""
        self._look()
        if self._coming or self._idle:
            return [pool for pool in pools if not pool.isdisjoint(self._within)]
        return next(([pool] for pool in pools if not pool.isdisjoint(self.free)), [])

    def _leaves(self, coming: dict[str, float], record: KernelRecord, since: float) -> None:
        for uuid in self._devices.owned(record):
            coming[uuid] = max(self._now, since + self._cost)

    def _gain(self, record: KernelRecord, pool: Collection[str]) -> int:
        return sum(uuid in pool for uuid in self._devices.owned(record))

    def offer(self, pool: Collection[str], count: int, own: Collection[KernelRecord] = ()) -> Offer:
        """What can be had of ``pool`` towards ``count`` GPUs, soonest first. ``own``: holders that are parked in any case."""
        self._look()
        soon = self._coming
        if own:
            soon = dict(soon)
            for record in own:
                self._leaves(soon, record, self._now)
        free = tuple(sorted(uuid for uuid in pool if uuid in self.free))[:count]
        coming = tuple(uuid for uuid in soon if uuid in pool)[: count - len(free)]
        ready = max((soon[uuid] for uuid in coming), default=self._now)
        missing = count - len(free) - len(coming)
        if missing <= 0:
            return Offer(free, coming, (), (), True, ready)
        ripe = (record for record, at in self._idle.items() if at <= self._now and record not in own)
        parks, gained = fewest(((record, self._gain(record, pool)) for record in ripe), missing)
        if parks:
            ready = max(ready, self._now + self._cost)
        later = []
        if gained < missing:
            hopes = [(min(at, ends_at(self._rules(record), record)[0]), record) for record, at in self._idle.items() if at > self._now]
            for at, record in sorted(hopes, key=lambda hope: hope[0]):
                gain = self._gain(record, pool)
                if gain and at < NEVER and gained < missing:
                    later.append(record)
                    gained += gain
                    ready = max(ready, at + self._cost)
        return Offer(free, coming, tuple(parks), tuple(later), not later and gained >= missing, ready if gained >= missing else NEVER)

    def claim(self, offer: Offer, pool: Collection[str], count: int) -> None:
        """The offer's GPUs are one waiter's; what its parked holders leave beyond ``count`` is for others."""
        for uuid in offer.free:
            del self.free[uuid]
        for uuid in offer.coming:
            del self._coming[uuid]
        missing = count - len(offer.free) - len(offer.coming)
        for record in offer.parks:
            gone = [uuid for uuid in self._devices.owned(record) if uuid in pool][: max(0, missing)]
            missing -= len(gone)
            self.park(record)
            for uuid in gone:
                del self._coming[uuid]
        self.expect(offer)

    def expect(self, offer: Offer) -> None:
        """Holders that will give way later are nobody else's hope."""
        for record in offer.later:
            del self._idle[record]

    def park(self, record: KernelRecord) -> None:
        """This holder is being parked from now on."""
        if self._idle.pop(record, None) is not None:
            self._leaves(self._coming, record, self._now)
