"""Waiting for the next thing that the watch tells. It must never miss one that is told between a look and a wait on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from . import names
from .reasons import Pod


class Pods:
    """Our pods as the watch has them (``cache``: its own dictionary), and word of each change."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.cache: dict[tuple[str, str], dict[str, Any]] = {}
        self.listener: Callable[[str, Pod], None] | None = None  # told of each change of a pod: its kind, and the pod
        self._waiting: list[asyncio.Future[None]] = []

    def told(self, *event: Any) -> None:
        """The watch's callback."""
        if event and self.listener is not None:
            self.listener(event[0], event[1])
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def changed(self, seconds: float | None = None) -> None:
        """Until something is told, or for so many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            pass

    def get(self, name: str) -> Pod | None:
        return self.cache.get((self._namespace, name))

    def of(self, role: str) -> list[Pod]:
        return [pod for pod in self.cache.values() if pod["metadata"].get("labels", {}).get(names.ROLE) == role]
