"""Pods of others that wait for what our slots have: they count like a kernel that waits. Needs the right to list pods everywhere.

It must never touch a pod that isn't ours, nor decide who gives way for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..base import Foreign
from . import names
from .api import PODS, KubeApi
from .fit import may_be_on
from .reasons import Pod
from .reflector import Cache, Reflector


class Pressure:
    """``told`` is called with all of them whenever that has changed. ``nodes``: the watch's own dictionary."""

    def __init__(self, api: KubeApi, resources: list[str], nodes: Cache, told: Callable[[tuple[Foreign, ...]], None]) -> None:
        self._resources, self._nodes, self._told = resources, nodes, told
        self._last: tuple[Foreign, ...] = ()
        # Ranks of bursts among them, but for those that take only what nobody needs
        others = f"{names.ROLE} notin ({names.ROLE_KERNEL},{names.ROLE_SLOT}),!{names.FLEX}"
        self._watch = Reflector(api, PODS, None, others, on_event=self._changed, fields="status.phase=Pending")

    def start(self) -> None:
        self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()

    def _changed(self, *event: object) -> None:
        now = tuple(found for pod in self._watch.cache.values() if (found := waits(pod, self._resources, self._nodes)) is not None)
        if now != self._last:
            self._last = now
            self._told(now)


def waits(pod: Pod, resources: list[str], nodes: Mapping[Any, Pod]) -> Foreign | None:
    """What a pod waits for that our slots could have; None where it doesn't."""
    if pod["metadata"].get("deletionTimestamp") or not _unschedulable(pod):
        return None
    for resource in resources:
        count = requested(pod, resource)
        if count:
            fit = [node["metadata"]["name"] for node in nodes.values() if allocatable(node, resource) >= count and may_be_on(pod, node)]
            return Foreign(f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}", count, tuple(sorted(fit)), resource)
    return None


def requested(pod: Pod, resource: str) -> int:
    """How many of it the scheduler counts for the pod; init containers need less."""
    return sum(_request(container, resource) for container in pod["spec"].get("containers") or ())


def allocatable(node: Pod, resource: str) -> int:
    """How many of it the node has, whoever uses them."""
    text = str(node.get("status", {}).get("allocatable", {}).get(resource, "0"))
    return int(text) if text.isdigit() else 0


def _unschedulable(pod: Pod) -> bool:
    return any(
        condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable"
        for condition in pod.get("status", {}).get("conditions") or ()
    )


def _request(container: Mapping[str, Any], resource: str) -> int:
    resources = container.get("resources") or {}
    text = str((resources.get("requests") or {}).get(resource) or (resources.get("limits") or {}).get(resource) or "0")
    return int(text) if text.isdigit() else 0
