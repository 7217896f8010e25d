"""Dask's scheduler, or a worker of it, in a pod: ``python -m gateway.pod.burst.dask_member scheduler PORT WORKERS READY | worker ADDRESS``.

The keys by which they know one another are where Dask's own variables say. It must never speak without them.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOK = 0.05  # seconds


async def schedule(distributed: Any, port: int, workers: int, there: Callable[[], None]) -> None:
    """Until it is told to end; ``there`` is called once all ``workers`` are."""
    async with distributed.Scheduler(protocol="tls", port=port, dashboard=False) as scheduler:
        while len(scheduler.workers) < workers:
            await asyncio.sleep(LOOK)
        there()
        await scheduler.finished()


async def work(distributed: Any, address: str) -> None:
    """Until it is told to end: its scheduler is gone a moment before that, which is no failure of its own."""
    async with distributed.Worker(address, protocol="tls", nthreads=1, dashboard=False) as worker:
        await worker.finished()
    await asyncio.Event().wait()


def main(argv: list[str]) -> int:
    distributed = importlib.import_module("distributed")  # the user's own, of whatever version
    if argv[1] == "scheduler":
        asyncio.run(schedule(distributed, int(argv[2]), int(argv[3]), Path(argv[4]).touch))
    else:
        asyncio.run(work(distributed, argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
