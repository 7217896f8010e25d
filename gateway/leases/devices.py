"""The GPUs, and which kernel has which. It must never choose whose turn it is.

One kernel has the right to a GPU. Where supervisors say, at adoption, that two hold it, the one that executes keeps the right
(else the one told first); the other is ``contested`` until it is parked, and nobody is granted the GPU meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from ..protocol.model import Gpu, Phase, Rung
from .fairness import Usage
from .record import KernelRecord

_RUNGS = {rung: rank for rank, rung in enumerate(Rung)}


class Devices:
    def __init__(self, usage: Usage) -> None:
        self.gpus: dict[str, Gpu] = {}
        self.lost: set[str] = set()
        self.away: set[str] = set()  # those of the lost that others have for a while
        self.owner: dict[str, KernelRecord] = {}  # uuid: who has the right to it; also for GPUs not seen (yet)
        self._usage = usage
        self._nodes: dict[str, dict[str, Gpu]] = defaultdict(dict)
        self._free: dict[str, dict[str, None]] = defaultdict(dict)  # by node
        self._idle: dict[str, dict[str, KernelRecord]] = defaultdict(dict)
        self._leaving: dict[str, dict[str, KernelRecord]] = defaultdict(dict)
        self._holders: dict[str, dict[str, KernelRecord]] = defaultdict(dict)
        self._of_user: dict[str, dict[str, KernelRecord]] = defaultdict(dict)
        self._contested: dict[str, KernelRecord] = {}
        self._at_home: dict[str, int] = defaultdict(int)  # uuid: how many parked states come from it
        self._homes: dict[str, dict[str, KernelRecord]] = defaultdict(dict)  # node: whose parked states come from its GPUs
        self._pools: dict[tuple[str, str, str | None], list[frozenset[str]]] = {}
        self._flavors: dict[tuple[str, str], str] = {}  # node and resource: that of all such GPUs, "" where they differ

    # inventory

    def see(self, gpu: Gpu) -> None:
        if gpu.uuid in self.gpus:
            self.lose(gpu.uuid)
            del self._nodes[self.gpus[gpu.uuid].node][gpu.uuid]
        self.gpus[gpu.uuid] = self._nodes[gpu.node][gpu.uuid] = gpu
        self.lost.discard(gpu.uuid)
        self.away.discard(gpu.uuid)
        self._pools.clear()
        self._flavors.clear()
        self._freed(gpu.uuid)

    def lose(self, uuid: str, returns: bool = False) -> None:
        self.lost.add(uuid)
        (self.away.add if returns else self.away.discard)(uuid)
        self._pools.clear()
        self._flavors.clear()
        if uuid in self.gpus:
            self._free[self.gpus[uuid].node].pop(uuid, None)

    def _freed(self, uuid: str) -> None:
        if uuid not in self.owner and self.usable(uuid):
            self._free[self.gpus[uuid].node][uuid] = None

    def bare(self, record: KernelRecord) -> bool:
        """No GPU of its kind was ever seen on its node: nothing to lease."""
        return not any(record.resource in ("", gpu.resource) for gpu in self._nodes[record.node].values())

    def size(self, node: str, resource: str = "") -> int:
        """How many GPUs of the node, of this kind, may be had, now or later."""
        return sum(self._possible(gpu.uuid) for gpu in self._of_kind(node, resource))

    def _of_kind(self, node: str, resource: str) -> list[Gpu]:
        """``resource``: "" for all."""
        return [gpu for gpu in self._nodes[node].values() if resource in ("", gpu.resource)]

    def usable(self, uuid: str) -> bool:
        return uuid in self.gpus and uuid not in self.lost

    def _possible(self, uuid: str) -> bool:
        """It may be had, now or later."""
        return self.usable(uuid) or (uuid in self.away and uuid in self.gpus)

    def fixed(self, record: KernelRecord) -> bool:
        """It has GPUs and can't be parked from them."""
        if record.rung is Rung.EXCLUSIVE:
            return bool(record.gpus)
        return not all(self.usable(uuid) and self.gpus[uuid].rung is not Rung.EXCLUSIVE for uuid in record.gpus)

    def rung(self, record: KernelRecord) -> tuple[Rung, str]:
        """What can be done with the record's state, and why not more: the worst of what is said of it and of the GPUs it is on, or left."""
        gpus = (self.gpus.get(uuid) for uuid in (*record.gpus, *record.home))
        words = [(record.rung, record.rung_reason), *((gpu.rung, gpu.reason) for gpu in gpus if gpu)]
        return max(words, key=lambda word: _RUNGS[word[0]])

    def flavor(self, record: KernelRecord) -> str:
        """That of the GPUs that it has or comes from, else of those of its node, "" where they differ or none is known."""
        for uuid in (*record.gpus, *record.home):
            if uuid in self.gpus:
                return self.gpus[uuid].flavor
        key = record.node, record.resource
        if key not in self._flavors:
            found = {gpu.flavor for gpu in self._of_kind(*key)}
            self._flavors[key] = found.pop() if len(found) == 1 else ""
        return self._flavors[key]

    def flavor_at(self, nodes: Collection[str]) -> str:
        """That of the GPUs of some nodes, "" where they differ or none is known."""
        found = {gpu.flavor for gpu in self.gpus.values() if gpu.node in nodes}
        return found.pop() if len(found) == 1 else ""

    def flavor_of(self, pool: Collection[str]) -> str:
        """That of GPUs of one flavor."""
        return next((self.gpus[uuid].flavor for uuid in pool if uuid in self.gpus), "")

    # who has what

    def free(self, node: str) -> dict[str, None]:
        return self._free[node]

    def holders(self, node: str) -> Collection[KernelRecord]:
        """The kernels that have GPUs there."""
        return self._holders[node].values()

    def idle(self, node: str) -> Collection[KernelRecord]:
        """Those of the holders that could be parked."""
        return self._idle[node].values()

    def leaving(self, node: str) -> Collection[KernelRecord]:
        """Those of the holders that are being parked."""
        return self._leaving[node].values()

    def of_user(self, user: str) -> Collection[KernelRecord]:
        """The user's kernels that have GPUs, on any node."""
        return self._of_user[user].values()

    def owned(self, record: KernelRecord) -> list[str]:
        """Those of its GPUs that come free when it is parked."""
        return [uuid for uuid in record.gpus if self.owner[uuid] is record]

    def file(self, record: KernelRecord) -> None:
        """The record's phase, or what it runs, has changed."""
        idle = record.phase is Phase.HOLDING and record.gpus and not record.busy and not record.fixed
        for shelf, there in ((self._idle, idle), (self._leaving, record.phase is Phase.PARKING)):
            if there:
                shelf[record.node][record.kernel_id] = record
            else:
                shelf[record.node].pop(record.kernel_id, None)

    def take(self, record: KernelRecord, gpus: tuple[str, ...], now: float) -> list[KernelRecord]:
        """The record has these GPUs from now on. Returns whom that makes contested."""
        record.gpus = gpus
        record.fixed = self.fixed(record)
        losers = []
        for uuid in gpus:
            other = self.owner.setdefault(uuid, record)
            if other is not record:
                loser = other if record.executing and not other.executing else record
                self.owner[uuid] = record if loser is other else other
                loser.contested = True
                self._contested[loser.kernel_id] = loser
                losers.append(loser)
            elif uuid in self.gpus:
                self._free[self.gpus[uuid].node].pop(uuid, None)
        self._holders[record.node][record.kernel_id] = self._of_user[record.user][record.kernel_id] = record
        self._usage.change(record.user, len(gpus), now)
        return losers

    def give(self, record: KernelRecord, now: float) -> list[KernelRecord]:
        """The record has no GPU any more. Returns who is contested no longer."""
        gpus, record.gpus, record.fixed, record.contested = record.gpus, (), False, False
        for shelf in (self._holders, self._idle, self._leaving):
            shelf[record.node].pop(record.kernel_id, None)
        self._of_user[record.user].pop(record.kernel_id, None)
        self._contested.pop(record.kernel_id, None)
        self._usage.change(record.user, -len(gpus), now)
        for uuid in gpus:
            if self.owner[uuid] is record:
                heir = next((other for other in self._contested.values() if uuid in other.gpus), None)
                if heir:
                    self.owner[uuid] = heir
                else:
                    del self.owner[uuid]
                    self._freed(uuid)
        settled = [other for other in self._contested.values() if all(self.owner[uuid] is other for uuid in other.gpus)]
        for heir in settled:
            heir.contested = False
            del self._contested[heir.kernel_id]
        return settled

    def set_home(self, record: KernelRecord, parked: bool, home: tuple[str, ...] = ()) -> None:
        """Where the record's parked state comes from, if any is parked."""
        for uuid in record.home:
            self._at_home[uuid] -= 1
        record.parked, record.home = parked, home if parked else ()
        for uuid in record.home:
            self._at_home[uuid] += 1
        if record.home:
            self._homes[record.node][record.kernel_id] = record
        else:
            self._homes[record.node].pop(record.kernel_id, None)

    def homes(self, uuid: str) -> int:
        """How many parked states come from this GPU."""
        return self._at_home[uuid]

    # what could serve a kernel

    def pools(self, record: KernelRecord) -> list[frozenset[str]]:
        """Sets of GPUs of one kind and flavor of which any ``record.count`` make a lease, those in use included. None: no GPU will do.

        A state that resumes anywhere, parked on a driver that does so too: all such GPUs of its node and flavor. Another parked
        state: its home alone. No state: any. Somebody outside: none that kernels need back.
        """
        if record.outside:
            kept = self._kept(record.node)
            return [rest for pool in self._cached(record.node, record.resource, None) if (rest := pool - kept)]
        if not record.home:
            return self._cached(record.node, record.resource, None)
        home = [self.gpus.get(uuid) for uuid in record.home]
        if record.rung is Rung.ANYWHERE and all(gpu and gpu.rung is Rung.ANYWHERE for gpu in home):
            return self._cached(record.node, record.resource, home[0].flavor)
        return [frozenset(record.home)] if all(self._possible(uuid) for uuid in record.home) else []

    def _cached(self, node: str, resource: str, flavor: str | None) -> list[frozenset[str]]:
        """``flavor``: that one, where states resume anywhere; None: each."""
        key = node, resource, flavor
        if key not in self._pools:
            gpus = [gpu for gpu in self._of_kind(node, resource) if self._possible(gpu.uuid)]
            if flavor is not None:
                gpus = [gpu for gpu in gpus if gpu.flavor == flavor and gpu.rung is Rung.ANYWHERE]
            kinds = dict.fromkeys((gpu.resource, gpu.flavor) for gpu in gpus)
            self._pools[key] = [frozenset(gpu.uuid for gpu in gpus if (gpu.resource, gpu.flavor) == one) for one in kinds]
        return self._pools[key]

    def _kept(self, node: str) -> set[str]:
        """GPUs of the node that are kept for parked states, or would be once their holder is parked: these come back to no other, and a
        GPU that somebody else was to leave might be another."""
        kept: set[str] = set()
        for record in (*self._homes[node].values(), *self._holders[node].values()):
            gpus = record.gpus or record.home
            first = self.gpus.get(gpus[0])
            several = first is not None and len(self._of_kind(node, first.resource)) > len(gpus)
            if several and self.rung(record)[0] is not Rung.ANYWHERE:
                kept.update(gpus)
        return kept

    def pick(self, record: KernelRecord, free: Collection[str], pool: Collection[str]) -> list[str]:
        """The best free GPUs for the record, none if there aren't enough: its home, then the best rung, then those where
        fewest others are at home (they may have to come back to them)."""
        fit = [uuid for uuid in pool if uuid in free]
        if len(fit) < record.count:
            return []
        fit.sort(key=lambda uuid: (uuid not in record.home, _RUNGS[self.gpus[uuid].rung], self._at_home[uuid], uuid))
        return fit[: record.count]
