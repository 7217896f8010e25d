"""A broker with supervisors that are faithful fakes, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.broker.broker import Broker
from gateway.protocol.model import Phase
from gateway.settings import Leases
from tests.doubles.fake_backend import FakeBackend, gpu
from tests.doubles.fake_supervisor import FakeSupervisor


class World:
    """A broker, its backend and a clock."""

    def __init__(self, *gpus: Any, owner: str = "", **leases: Any) -> None:
        self.now = 1000.0
        self.backend = FakeBackend(*(gpus or (gpu(),)))
        self.leases = Leases(**{"min_hold": 0.0, **leases})
        self.owner = owner
        self.broker = self.another()

    def another(self) -> Broker:
        return Broker(owner=self.owner, backend=self.backend, leases=self.leases, clock=lambda: self.now)

    async def kernel(self, kernel_id: str = "k1", user: str = "ada", **kwargs: Any) -> FakeSupervisor:
        supervisor = FakeSupervisor(kernel_id, user, **kwargs).listen()
        self.backend.supervisors.append(supervisor)
        await self.broker.dial(supervisor)
        return supervisor

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.broker.tick()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.001)

    async def phase(self, supervisor: FakeSupervisor, phase: Phase) -> None:
        """Until supervisor and book agree on it."""
        kernels = self.broker.book.kernels
        await self.until(lambda: supervisor.state.lease.phase == phase and kernels[supervisor.kernel_id].phase == phase)
        self.broker.book.validate()

    async def executing(self, supervisor: FakeSupervisor) -> None:
        """Until its kernel has a GPU and a cell runs on it, as the book knows too."""
        supervisor.want()
        await self.phase(supervisor, Phase.HOLDING)
        supervisor.run()
        await self.until(lambda: self.lease(supervisor.kernel_id)["executing"])

    def lease(self, kernel_id: str = "k1") -> dict[str, Any]:
        return next(lease for lease in self.broker.snapshot()["leases"] if lease["kernel_id"] == kernel_id)


def run(story: Callable[[World], Coroutine[Any, Any, None]], *gpus: Any, **leases: Any) -> None:
    async def whole() -> None:
        world = World(*gpus, **leases)
        await world.broker.start()
        try:
            await story(world)
        finally:
            await world.broker.stop()

    asyncio.run(asyncio.wait_for(whole(), 30))
