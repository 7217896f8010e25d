"""When a kernel process ends by itself: start another, or give up.

It hears of each death over the link, so it must never poll. Only this restarts a kernel unasked.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from jupyter_client.ioloop.restarter import AsyncIOLoopKernelRestarter


class ElasticRestarter(AsyncIOLoopKernelRestarter):
    """Restarts at once, ``restart_limit`` times in a row; a process that has lived for ``stable_start_time`` begins a new row."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._watching = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watching = True
        self._last_dead = time.time()

    def stop(self) -> None:
        self._watching = False

    async def poll(self) -> None:
        """Nothing to do: deaths are told."""

    def died(self, worth_it: bool) -> bool:
        """The process has ended unasked. ``worth_it``: it had worked before. Returns whether another is being started."""
        if not self._watching:
            return False
        lived = time.time() - self._last_dead
        self._restart_count = 1 if lived >= self.stable_start_time else self._restart_count + 1
        if not worth_it or self._restart_count > self.restart_limit:
            self._watching = False
            self._fire_callbacks("dead")
            return False
        self.log.warning("Kernel %s died, restart %d of %d.", self.kernel_manager.kernel_id, self._restart_count, self.restart_limit)
        self._fire_callbacks("restart")
        self._task = asyncio.get_running_loop().create_task(self._restart())
        return True

    def cancel(self) -> None:
        """The kernel is being ended for good, in whatever state a restart is."""
        self.stop()
        if self._task is not None:
            self._task.cancel()

    async def _restart(self) -> None:
        if not self._watching:  # somebody has begun a restart by hand
            return
        try:
            await self.kernel_manager.restart_kernel(now=True)
        except Exception as exc:  # the kernel manager has told the notebooks
            self.log.error("Kernel %s could not be restarted: %s", self.kernel_manager.kernel_id, exc)
            self._fire_callbacks("dead")
