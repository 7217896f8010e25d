"""The GPUs of one node as one look at its queue finds them: free, being left, and held by kernels that could give way.

What one waiter claims is gone for those behind it. It must never know who waits, nor change a record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..protocol.model import Phase
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
        if gained >= missing:
            break
        if gain:
            chosen.append((record, gain))
            gained += gain
    for one in reversed(chosen[:]):
        if gained - one[1] >= missing:
            chosen.remove(one)
            gained -= one[1]
    return [record for record, _ in chosen], gained


class Supply:
    """``park_cost``: seconds that parking takes, as seen so far."""

    def __init__(self, node: str, devices: Devices, policy: Policy, park_cost: float, now: float) -> None:
        self._devices, self._cost, self._now = devices, park_cost, now
        self.free = devices.free(node)
        self.coming: dict[str, float] = {}  # uuid: when it will be free
        self._idle: dict[str, tuple[KernelRecord, float, float]] = {}  # (holder, when it yields, when its lease ends anyway)
        idle = []
        for record in devices.holders(node):
            if record.phase is Phase.PARKING:
                self._leaves(record, record.since)
            elif record.phase is Phase.HOLDING and record.gpus and not record.busy and not record.fixed:
                yields = yields_at(policy, record)
                idle.append((record, yields, min(yields, ends_at(policy, record)[0])))
        idle.sort(key=lambda one: one[0].idle_since)
        self._idle = {one[0].kernel_id: one for one in idle}
        self.next = min((yields for _, yields, _ in idle if yields > now), default=NEVER)  # when more can be had

    def __bool__(self) -> bool:
        return bool(self.free or self.coming or self._idle)

    def _leaves(self, record: KernelRecord, since: float) -> None:
        for uuid in self._devices.owned(record):
            self.coming[uuid] = max(self._now, since + self._cost)

    def offer(self, pool: Collection[str], count: int, own: Collection[KernelRecord] = ()) -> Offer:
        """What can be had of ``pool`` towards ``count`` GPUs, soonest first. ``own``: holders that are parked in any case."""
        soon = self.coming
        if own:
            soon = soon | {uuid: self._now + self._cost for record in own for uuid in self._devices.owned(record)}
        free = tuple(uuid for uuid in self.free if uuid in pool)[:count]
        coming = tuple(uuid for uuid in soon if uuid in pool)[: count - len(free)]
        ready = max((soon[uuid] for uuid in coming), default=self._now)
        missing = count - len(free) - len(coming)
        if missing <= 0:
            return Offer(free, coming, (), (), True, ready)
        gains = [
            (one, sum(uuid in pool for uuid in self._devices.owned(one[0]))) for one in self._idle.values() if one[0] not in own
        ]  # fmt: skip
        parks, gained = fewest(((one[0], gain) for one, gain in gains if one[1] <= self._now), missing)
        if parks:
            ready = max(ready, self._now + self._cost)
        later = []
        if gained < missing:
            for (record, yields, ends), gain in sorted(gains, key=lambda one: one[0][2]):
                if yields > self._now and gain and ends < NEVER and gained < missing:
                    later.append(record)
                    gained += gain
                    ready = max(ready, ends + self._cost)
        whole = not later and gained >= missing
        return Offer(free, coming, tuple(parks), tuple(later), whole, ready if gained >= missing else NEVER)

    def claim(self, offer: Offer, pool: Collection[str], count: int) -> None:
        """The offer's GPUs are one waiter's; what its parked holders leave beyond ``count`` is for others."""
        for uuid in offer.free:
            del self.free[uuid]
        for uuid in offer.coming:
            del self.coming[uuid]
        missing = count - len(offer.free) - len(offer.coming)
        for record in offer.parks:
            gone = [uuid for uuid in self._devices.owned(record) if uuid in pool][: max(0, missing)]
            missing -= len(gone)
            self.park(record)
            for uuid in gone:
                del self.coming[uuid]
        self.expect(offer)

    def expect(self, offer: Offer) -> None:
        """Holders that will give way later are nobody else's hope."""
        for record in offer.later:
            del self._idle[record.kernel_id]

    def park(self, record: KernelRecord) -> None:
        """This holder is being parked from now on."""
        if self._idle.pop(record.kernel_id, None):
            self._leaves(record, self._now)
