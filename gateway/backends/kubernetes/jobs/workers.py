"""The pods of elastic bursts, as the watch has them, and the Jobs of those beyond the least: made, ended, and for how many there is room.

It must never end the pods of a base, nor make again what was lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....protocol.errors import ElasticError
from .. import names, reasons
from ..api import JOBS
from ..errors import ApiConflict, ApiMissing
from ..profiles import Profile
from . import parts
from .idle import Idle
from .manifests import Object

if TYPE_CHECKING:
    from ..cluster import KubernetesCluster

SEEN_SECONDS = 3.0  # for the first look at all pods


@dataclass(frozen=True)
class Member:
    """One pod. ``flex``: its number among the workers beyond the least, 0: it is of the base. ``trouble``: why it doesn't run, or runs no
    more."""

    name: str
    flex: int
    node: str
    address: str  # "": it doesn't run
    ending: bool  # it was told to
    over: bool
    trouble: reasons.Trouble | None


class Workers:
    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster
        self._idle: Idle | None = None

    def base(self, job: Object, profile: Profile, on_demand: bool) -> Object:
        """The Job of the least."""
        return parts.base(job, profile, on_demand)

    def flex(self, job: Object, profile: Profile, on_demand: bool) -> Object:
        """What a worker more is made of."""
        return parts.flex(job, profile, on_demand)

    def members(self, burst_id: str) -> dict[str, Member]:
        """By name of the pod."""
        found = {}
        for pod in self._cluster.ranks():
            labels, name = pod["metadata"]["labels"], pod["metadata"]["name"]
            if labels.get(names.BURST) == burst_id:
                flex = labels.get(names.FLEX, "")
                runs = reasons.running(pod) and not reasons.over(pod)
                found[name] = Member(
                    name, int(flex) if flex.isdigit() else 0, pod["spec"].get("nodeName") or "",
                    str(pod["status"].get("podIP") or "") if runs else "", bool(pod["metadata"].get("deletionTimestamp")),
                    reasons.over(pod) or reasons.node_lost(pod), reasons.trouble(pod, "the worker"),
                )  # fmt: skip
        return found

    def gpus(self, burst_id: str) -> dict[str, int]:
        """What its pods have that run, of all roles, by node."""
        found: dict[str, int] = {}
        for pod in self._cluster.ranks():
            if pod["metadata"]["labels"].get(names.BURST) == burst_id and reasons.running(pod) and not reasons.over(pod):
                with contextlib.suppress(ElasticError):  # a role without any
                    count = sum(gpus_of(pod["spec"]).values())
                    found[pod["spec"]["nodeName"]] = found.get(pod["spec"]["nodeName"], 0) + count
        return found

    async def ended(self, burst_id: str) -> str:
        """Why no pod of the base will come any more; "" where one may. Raises ``ApiError``."""
        try:
            job = await self._cluster.api.get(JOBS, self._cluster.namespace, names.burst_job(burst_id))
        except ApiMissing:
            return "Its Job was deleted in the cluster."
        for condition in job.get("status", {}).get("conditions") or ():
            if condition.get("type") == "Failed" and condition.get("status") == "True":
                return f"Its Job has failed: {condition.get('message') or condition.get('reason')}."
        return ""

    async def begin(self, flex: Object, number: int, uid: str) -> str:
        """One more; returns the uid of its Job. ``uid``: of the base's. No error where it has begun already. Raises ``ApiError``."""
        job = parts.numbered(flex, number, {"metadata": {"name": flex["metadata"]["name"], "uid": uid}})
        try:
            made = await self._cluster.api.create(JOBS, self._cluster.namespace, job)
        except ApiConflict:
            made = await self._cluster.api.get(JOBS, self._cluster.namespace, job["metadata"]["name"])
        return str(made["metadata"]["uid"])

    async def end(self, burst_id: str, number: int) -> None:
        """No error where it has gone. Raises ``ApiError``."""
        await self._cluster.api.delete(JOBS, self._cluster.namespace, f"{names.burst_job(burst_id)}-{number}")

    def resource(self, flex: Mapping[str, Any]) -> str:
        """What their GPUs are counted in. Raises ``ElasticError`` where they have none."""
        return next(iter(gpus_of(flex["spec"]["template"]["spec"])))

    async def room(self, flex: Mapping[str, Any], everywhere: bool) -> int:
        """For how many workers more there are GPUs that nobody has asked for; 0 where that isn't known."""
        pod = flex["spec"]["template"]["spec"]
        [(resource, count)] = gpus_of(pod).items()
        if self._idle is None:
            self._idle = Idle(self._cluster.api, None if everywhere else self._cluster.namespace)
        if not await self._idle.ready(SEEN_SECONDS):
            return 0
        return self._idle.workers(resource, count, pod.get("nodeSelector") or {}, self._cluster.drained)

    async def rest(self) -> None:
        """Nobody asks for room just now."""
        idle, self._idle = self._idle, None
        if idle is not None:
            await idle.stop()


def gpus_of(pod: Mapping[str, Any]) -> dict[str, int]:
    """What the pod's containers request that is neither cores nor memory: GPUs by the name of their resource. Raises ``ElasticError``."""
    found: dict[str, int] = {}
    for container in pod["containers"]:
        for name, amount in container["resources"].get("limits", {}).items():
            if name not in ("cpu", "memory") and str(amount).isdigit():
                found[name] = found.get(name, 0) + int(amount)
    if len(found) != 1:
        raise ElasticError("These workers have no GPUs.")
    return found
