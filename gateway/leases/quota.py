"""How many GPUs a user may hold, as one look at a queue goes on.

A waiter over one of its user's quotas presses on that user's own idle kernels alone. It must never change a record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ..protocol.model import Phase
from .devices import Devices
from .fairness import Usage
from .levels import FLAVOR, KERNELSPEC, Levels, Said, counts
from .policy import NEVER, Policy, yields_at
from .record import KernelRecord
from .supply import fewest


@dataclass(slots=True)
class Room:
    """What has to happen before a waiter is within its quotas."""

    quota: Said  # the first that it is over
    held: int  # GPUs that count against that
    holders: list[KernelRecord]  # who has them
    own: list[KernelRecord] | None = field(default_factory=list)  # of them, those to park now; None: that can't be yet
    ready: float = NEVER  # when it can, as far as one knows


class Quotas:
    """Users' GPUs in this look, with what has been claimed and given up in it."""

    def __init__(self, devices: Devices, usage: Usage, levels: Levels, rules: Callable[[KernelRecord], Policy], now: float) -> None:
        self._devices, self._usage, self._levels, self._rules, self._now = devices, usage, levels, rules, now
        self._more: dict[str, list[tuple[str, str, int]]] = {}  # claimed in this look, by user: kernelspec, flavor, GPUs
        self._leaving: set[KernelRecord] = set()

    def could(self, waiter: KernelRecord, flavor: str) -> bool:
        """Whether it may ever have its GPUs, of this flavor."""
        return waiter.outside or self._levels.forbids(waiter.count, waiter.user, waiter.name, flavor) is None

    def allows(self, waiter: KernelRecord, flavor: str) -> bool:
        """Whether it may have its GPUs now, of this flavor."""
        if waiter.outside or not self._levels.limited:
            return True
        quotas = self._levels.quotas(waiter.user, waiter.name, flavor)
        return all(self._held(waiter, quota) + waiter.count <= quota.value for quota in quotas)

    def claimed(self, waiter: KernelRecord, flavor: str, parked: Collection[KernelRecord] = ()) -> None:
        if self._levels.limited:
            self._more.setdefault(waiter.user, []).append((waiter.name, flavor, waiter.count))
            self._leaving.update(parked)

    def room(self, waiter: KernelRecord, flavor: str) -> Room:
        """How a waiter that isn't allowed could be."""
        quotas = [
            quota
            for quota in self._levels.quotas(waiter.user, waiter.name, flavor)
            if self._held(waiter, quota) + waiter.count > quota.value
        ]
        mine = self._devices.of_user(waiter.user)
        first = quotas[0]
        room = Room(first, self._held(waiter, first), [each for each in mine if self._counts(first, each)])
        chosen: list[KernelRecord] = []
        ready = self._now
        for quota in quotas:
            over, idle, later = self._held(waiter, quota) + waiter.count - quota.value, [], []
            for record in mine:
                if not self._counts(quota, record):
                    continue
                if record.phase is Phase.PARKING or record in self._leaving or record in chosen:
                    over -= len(record.gpus)
                elif record.phase is Phase.HOLDING and not record.busy:
                    at = yields_at(self._rules(record), record)
                    (idle if at <= self._now else later).append((at, record))
            idle.sort(key=lambda each: each[1].idle_since)
            own, gained = fewest(((record, len(record.gpus)) for _, record in idle), over)
            chosen += own
            for at, record in sorted(later, key=lambda each: each[0]):
                if gained < over:
                    gained, ready = gained + len(record.gpus), max(ready, at)
            if gained < over:
                ready = NEVER
        room.own, room.ready = (chosen, self._now) if ready == self._now else (None, ready)
        return room

    def _held(self, waiter: KernelRecord, quota: Said) -> int:
        more = sum(count for name, flavor, count in self._more.get(waiter.user, ()) if counts(quota, name, flavor))
        if quota.level not in (FLAVOR, KERNELSPEC):
            return self._usage.held(waiter.user) + more
        return sum(len(each.gpus) for each in self._devices.of_user(waiter.user) if self._counts(quota, each)) + more

    def _counts(self, quota: Said, record: KernelRecord) -> bool:
        return counts(quota, record.name, self._devices.flavor(record))
