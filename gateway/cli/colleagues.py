"""The demo's colleagues: kernels beside the notebook's own, started without the gateway as a papermill run would, and a live view of who
has which GPU.

The example notebook imports it. It must never ask for a GPU for the kernel that it runs in.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_client.manager import start_new_async_kernel

from . import client, show

LOOK_SECONDS = 0.2  # between two looks at who has what
WORK = "%%gpu\n%gpu simulate 1GB\nimport time\ntime.sleep({seconds})"


class Colleague:
    """A kernel of somebody's own; ``await Colleague.arrives("ann")``."""

    def __init__(self, name: str, manager: Any, kernel_client: Any) -> None:
        self.notebook = f"{name}.ipynb"
        self._manager, self._client = manager, kernel_client
        self._work: asyncio.Future[None] | None = None

    @classmethod
    async def arrives(cls, name: str) -> Colleague:
        env = {**os.environ, "JPY_SESSION_NAME": f"{name}.ipynb"}
        return cls(name, *await start_new_async_kernel(kernel_name="elastic-python", env=env))

    def works(self, seconds: float) -> None:
        """Run a cell that needs a GPU for so long, once there is one; returns at once."""
        self._work = asyncio.ensure_future(self._answered(self._client.execute(WORK.format(seconds=seconds))))

    @property
    def done(self) -> bool:
        """Nothing runs or waits."""
        return self._work is None or self._work.done()

    async def leaves(self) -> None:
        self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)

    async def _answered(self, msg_id: str) -> None:
        while (await self._client.get_shell_msg())["parent_header"].get("msg_id") != msg_id:
            pass


def gpus() -> int:
    """How many GPUs are shared here."""
    return len(_snapshot()["gpus"])


async def watch(until: Callable[[Mapping[str, str]], bool]) -> None:
    """Print a line for each change of who has which GPU, until ``until(phases)`` of the kernels by their notebooks."""
    began, told = time.monotonic(), dict[str, str]()
    while True:
        state = _snapshot()
        places = {place["kernel_id"]: place["position"] for place in state["queue"]}
        names = {lease["kernel_id"]: lease["notebook"] or show.short(lease["kernel_id"]) for lease in state["leases"]}
        for lease in state["leases"]:
            words = describe(lease, places.get(lease["kernel_id"]))
            if told.get(lease["kernel_id"]) != words:
                told[lease["kernel_id"]] = words
                print(f"{time.monotonic() - began:5.1f} s  {names[lease['kernel_id']]:22} {words}", flush=True)
        if until({names[lease["kernel_id"]]: lease["phase"] for lease in state["leases"]}):
            return
        await asyncio.sleep(LOOK_SECONDS)


def describe(lease: Mapping[str, Any], place: int | None) -> str:
    """What a kernel is doing about its GPU, in a few words."""
    gpu = " ".join(lease["gpus"])
    return {
        "COLD": "has no GPU",
        "WAITING": f"waits for a GPU, place {place or '?'}",
        "RESUMING": f"gets {gpu}",
        "HOLDING": f"works on {gpu}" if lease["executing"] else f"has {gpu} and does nothing with it",
        "PARKING": f"gives {gpu} back",
        "PARKED": f"has given its GPU back; {show.size(lease['parked_bytes'])} of it wait in this machine's memory",
    }[lease["phase"]]


def _snapshot() -> dict[str, Any]:
    return client.lessor(argparse.Namespace(url=None, token_file=None)).snapshot()
