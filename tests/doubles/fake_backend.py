"""A backend whose supervisors, GPUs and driver are what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Set

from gateway.backends.base import Backend, Claim, GpusTaken, Supervisor
from gateway.backends.places import Places
from gateway.protocol.errors import SupervisorLost
from gateway.protocol.model import Gpu, Rung, Spec


def gpu(uuid: str = "GPU-0", simulated: bool = True, rung: Rung = Rung.ANYWHERE) -> Gpu:
    return Gpu(uuid, flavor="test", memory_bytes=1 << 30, simulated=simulated, rung=rung)


class FakeBackend(Backend):
    def __init__(self, *gpus: Gpu, places: Places | None = None, numbers: Iterable[int] = range(1, 100)) -> None:
        self.gpus = list(gpus)
        self.foreign: dict[str, str] = {}
        self.supervisors: list[Supervisor] = []
        self.places = places
        self.claimed = False
        self.used = False
        self.acquired: list[tuple[str, tuple[str, ...]]] = []
        self.slots: dict[tuple[str, ...], str] = {}
        self.slow, self.taken = False, ""
        self.returns: set[str] = set()
        self.asked: list[tuple[int, list[str], float]] = []
        self._numbers = iter(numbers)

    async def start(self, spec: Spec, told: Callable[[str], None] = lambda text: None) -> Supervisor:
        raise NotImplementedError

    async def find(self) -> list[Supervisor]:
        return [each for each in self.supervisors if each.alive()]

    async def at(self, place: str) -> Supervisor:
        for each in self.supervisors:
            if each.place == place and each.alive():
                return each
        raise SupervisorLost(f"nobody at {place}")

    async def generation(self) -> int:
        return next(self._numbers)

    async def claim(self, who: str, ours: Collection[str] = (), known: Set[str] = frozenset()) -> Claim:
        self.claimed = True
        return Claim(tuple(self.gpus), {uuid: who for uuid, who in self.foreign.items() if uuid not in ours}, self.returns)

    async def acquire(self, supervisor: Supervisor, gpus: tuple[str, ...]) -> list[str]:
        self.acquired.append((supervisor.kernel_id, gpus))
        while self.slow:
            await asyncio.sleep(0.001)
        if self.taken:
            raise GpusTaken(self.taken, gpus[-1:])
        self.slots[gpus] = supervisor.kernel_id
        return [f"real-{uuid}" for uuid in gpus]

    def settle(
        self, leases: Mapping[str, tuple[str, ...]], known: Set[str], waiting: Set[str], homes: Mapping[str, tuple[str, ...]]
    ) -> None:  # fmt: skip
        self.waiting, self.homes = waiting, homes
        self.slots = {gpus: kernel for gpus, kernel in self.slots.items() if gpus in leases.values() or kernel not in known}

    def unclaim(self) -> None:
        self.claimed = False

    async def uses(self, kernel_pid: int, gpus: Iterable[str], seconds: float) -> bool:
        self.asked.append((kernel_pid, list(gpus), seconds))
        return self.used
