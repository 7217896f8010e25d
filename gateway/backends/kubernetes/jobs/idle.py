"""GPUs that no pod has asked for: allocatable less requested, node by node. They are what an elastic burst may take.

What pods of others have asked for is seen where the gateway may list pods everywhere; else only its own namespace's counts, and the
scheduler has the last word anyway. It must never decide what becomes of an idle GPU.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from .. import reasons
from ..api import NODES, PODS, KubeApi
from ..pressure import allocatable, requested
from ..reasons import Pod
from ..reflector import Reflector


def workers(
    nodes: Iterable[Pod], pods: Iterable[Pod], resource: str, each: int, selector: Mapping[str, str], drained: Collection[str] = ()
) -> int:  # fmt: skip
    """For how many workers with ``each`` GPUs there is room on nodes that ``selector`` fits. Pure."""
    used: Counter[str] = Counter()
    for pod in pods:
        if not reasons.over(pod):
            used[pod["spec"].get("nodeName") or ""] += requested(pod, resource)
    free = 0
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        if selector.items() <= labels.items() and not node["spec"].get("unschedulable") and name not in drained:
            free += max(0, allocatable(node, resource) - used[name]) // each
    return max(0, free - used[""] // each)  # those that wait for a node


class Idle:
    """``namespace``: where pods are seen; None: everywhere. It watches from the first question to ``stop``."""

    def __init__(self, api: KubeApi, namespace: str | None) -> None:
        self._pods, self._nodes = Reflector(api, PODS, namespace), Reflector(api, NODES, None)
        self._pods.start()
        self._nodes.start()

    async def ready(self, seconds: float) -> bool:
        """Whether it has seen all by then."""
        try:
            async with asyncio.timeout(seconds):
                await self._pods.synced.wait()
                await self._nodes.synced.wait()
        except TimeoutError:
            return False
        return True

    def workers(self, resource: str, each: int, selector: Mapping[str, str], drained: Collection[str] = ()) -> int:
        """As ``workers``; 0 while what is known is not current."""
        if not (self._pods.connected and self._nodes.connected):
            return 0
        return workers(self._nodes.cache.values(), self._pods.cache.values(), resource, each, selector, drained)

    async def stop(self) -> None:
        await self._pods.stop()
        await self._nodes.stop()
