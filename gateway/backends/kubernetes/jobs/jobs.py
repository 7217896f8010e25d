"""The Jobs of bursts: made, looked at, ended. What becomes of a burst is decided by whoever has asked for it.

It must never make a second Job for a burst, nor let pods of one begin before all that they need is there.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....protocol.errors import BadRequest, ElasticError, SettingError
from ....protocol.roles import Role
from .. import names, reasons
from ..api import EVENTS, JOBS, NETWORK_POLICIES, SECRETS, SERVICES, WORKLOADS, Kind
from ..errors import ApiConflict, ApiDenied, ApiMissing
from ..profiles import Profile, chosen
from . import adapters, manifests, workload
from . import roles as rolejobs
from .adapters import Shape, volcano
from .adapters.parts import Part
from .manifests import Object, Wanted
from .workers import Workers

if TYPE_CHECKING:
    from ..cluster import KubernetesCluster

log = logging.getLogger(__name__)

INDEX = "batch.kubernetes.io/job-completion-index"  # label of a Job's pod
ROLE = "rank"  # of a burst that has but one
ALONE: Mapping[str, Object] = {}  # there are no other roles
_KINDS = {"Secret": SECRETS, "Service": SERVICES, "NetworkPolicy": NETWORK_POLICIES}


@dataclass(frozen=True)
class Pods:
    """The pods of one burst, as the watch has them: the newest of each rank. ``addresses``: of those that run, by rank."""

    addresses: Mapping[int, str]
    trouble: Mapping[int, reasons.Trouble]
    ended: Mapping[int, int | None]  # exit codes of those that have ended, by rank; None: not known
    count: int


class Jobs:
    """``kinds``: what bursts may be made as, besides Jobs; the admin says so, as it takes rights."""

    def __init__(self, cluster: KubernetesCluster, kinds: Sequence[str] = ()) -> None:
        self._cluster, self.kinds = cluster, (adapters.JOB, *kinds)
        self.workers = Workers(cluster)

    @property
    def sees_all(self) -> bool:
        """Whether the gateway may list the pods of all namespaces."""
        return self._cluster.sees_all

    # what a burst would be

    def profile(self, supervisor: Any, image: str = "") -> Profile:
        """As the kernel's own pod has it, with what its user has chosen. ``image``: another for the workers, of those that the profile
        leaves to clients. Raises ``BadRequest``; ``SettingError`` where the profile isn't there any more."""
        profile = self._cluster.profiles.get(supervisor.profile)
        if profile is None:
            raise SettingError(f"This kernel's profile {supervisor.profile!r} is not there any more: restart the kernel.")
        own = chosen(profile, (supervisor.whose or {}).get("env") or {})
        try:
            return chosen(own, {"KERNEL_IMAGE": image})
        except BadRequest as exc:
            raise BadRequest(f"--image can't be had: {exc}") from None

    def wanted(
        self, supervisor: Any, burst_id: str, workers: int, gpus: int, detach: bool, timeout: float | None, queue: str = "",
        shape: str = adapters.JOB, on_demand: bool = False, procs: int = 1,
    ) -> Wanted:  # fmt: skip
        owner = None if detach else {"name": supervisor.place, "uid": supervisor.uid}
        return Wanted(burst_id, supervisor.kernel_id, supervisor.user, workers, gpus, owner, timeout, queue, shape, on_demand, procs)

    def checked_shape(self, name: str, to_run: bool = True) -> str:
        """A kind that bursts can be made as; with ``to_run`` one that is allowed here and in which ranks can run. Raises ``BadRequest``."""
        shape = adapters.shape(name)
        if to_run and not shape.runs:
            raise BadRequest(f"A cell isn't run as -l {name} in this version; --dry-run shows the objects. -l job runs it.")
        if to_run and name not in self.kinds:
            raise BadRequest(
                f"-l {name} isn't switched on here; there is -l {', -l '.join(self.kinds)}. The admin switches it on with "
                "KubernetesBackend.job_kinds (bursts.kinds of the chart); --dry-run shows the objects."
            )
        return name

    def again(self, kept: Mapping[str, Any]) -> Wanted:
        """From ``asdict``."""
        return Wanted(**kept)

    def job(self, profile: Profile, wanted: Wanted) -> Object:
        return manifests.job(self._cluster.site, profile, wanted, self._cluster.drained)

    def roles(self, profile: Profile, wanted: Wanted, others: Sequence[tuple[Role, int]]) -> dict[str, Object]:
        """The Jobs of roles beside the first, by name. ``others``: each with the number of its first member. Raises ``BadRequest``."""
        return {role.name: rolejobs.job(self._cluster.site, profile, wanted, role, first, self._cluster.drained) for role, first in others}

    def shown(self, job: Object, wanted: Wanted, roles: Mapping[str, Object] = ALONE) -> list[Object]:
        """All objects as they would be, but for what is known only then, and the token."""
        shape, parts = adapters.shape(wanted.shape), _parts(job, roles)
        main = shape.build(parts)
        belongings = manifests.belongings(self._cluster.site, wanted, "", {"token": "(made when it starts)"})
        beside = roles.values() if wanted.shape == adapters.JOB else ()
        return [*shape.before(parts), main, *beside, *adapters.belonging(belongings, shape, main)]

    # in the cluster

    async def make(self, job: Object, wanted: Wanted, access: Mapping[str, str], roles: Mapping[str, Object] = ALONE) -> str:
        """Job, or what stands for it, then what belongs to it, then it is let go. Returns its uid. ``roles``: Jobs of others, by name. May
        be called again for one that was cut short. Raises ``ApiError``, ``BadRequest``."""
        api, namespace, name = self._cluster.api, self._cluster.namespace, job["metadata"]["name"]
        shape, parts = adapters.shape(wanted.shape), _parts(job, roles)
        main, before = shape.build(parts), shape.before(parts)
        await self._cluster.bring_code()
        ours = True
        try:
            for each in before:
                await self._there(_before(shape), each)
            made = await api.create(_main(shape), namespace, main)
        except ApiConflict:  # from the time before: its pods may run
            made, ours = await api.get(_main(shape), namespace, name), False
        except ApiMissing:
            what = f"{main['kind']} of {shape.group_version}"
            raise BadRequest(f"This cluster has no {what}: the admin installs it. -l job needs none.") from None
        except ElasticError:
            if before:
                await self.end(wanted.id, wanted.shape)
            raise
        uid = str(made["metadata"]["uid"])
        try:
            belongings = manifests.belongings(self._cluster.site, wanted, uid, access)
            for each in adapters.belonging(belongings, shape, main):
                await self._there(_KINDS[each["kind"]], each)
            for each in roles.values() if wanted.shape == adapters.JOB else ():
                await self._there(JOBS, {**rolejobs.owned(each, made), "spec": {**each["spec"], "suspend": False}})
            if shape.let_go is not None and not wanted.queue:  # else Kueue does
                await api.patch(_main(shape), namespace, name, dict(shape.let_go))
        except ElasticError:
            if ours:
                await self.end(wanted.id, wanted.shape)
            raise
        return uid

    async def _there(self, kind: Kind, body: Object) -> None:
        try:
            await self._cluster.api.create(kind, self._cluster.namespace, body)
        except ApiConflict:
            pass  # from the time before

    async def end(self, burst_id: str, shape: str = "") -> None:
        """Its pods are told to end; all that belongs to it goes with it. No error where it has gone. ``shape``: "" where it isn't known.
        Raises ``ApiError``."""
        name = names.burst_job(burst_id)
        for each in map(adapters.shape, [shape] if shape else self.kinds):
            await self._cluster.api.delete(_main(each), self._cluster.namespace, name)
            if each.before_plural:
                await self._cluster.api.delete(_before(each), self._cluster.namespace, name)

    async def ids(self) -> set[str]:
        """Of all bursts that have a Job, or what stands for one."""
        selector, found = names.selector(self._cluster.name, names.ROLE_RANK), set[str]()
        for shape in map(adapters.shape, self.kinds):
            for kind in (_main(shape), *([_before(shape)] if shape.before_plural else [])):
                try:
                    items, _ = await self._cluster.api.list(kind, self._cluster.namespace, selector)
                except (ApiMissing, ApiDenied) as exc:
                    if shape is adapters.SHAPES[adapters.JOB]:
                        raise
                    log.warning("what bursts there are as %s can't be seen: %s", kind.plural, exc)
                    continue
                found |= {item["metadata"]["labels"].get(names.BURST, "") for item in items}
        return found - {""}

    async def refusal(self, burst_id: str, shape: str = adapters.JOB) -> str:
        """Why the cluster makes no pods for that burst, in its own words; "" where it says nothing. Raises ``ApiError``."""
        name = names.burst_job(burst_id)
        job = adapters.shape(shape).makes_pods.format(name=name, role=ROLE) or name
        return await self._warned(*dict.fromkeys((name, job)))

    async def hindrance(self, burst_id: str) -> str:
        """Why a pod of it that has a node doesn't begin to run, in the cluster's own words, as of a volume that can't be mounted; "" where
        it says nothing. Raises ``ApiError``."""
        for pod in self._newest(burst_id).values():
            if pod["spec"].get("nodeName") and not reasons.running(pod) and not reasons.over(pod):
                warned = await self._warned(pod["metadata"]["name"])
                if warned:
                    return warned
        return ""

    async def _warned(self, *called: str) -> str:
        """The newest warning about objects of these names."""
        found: list[Object] = []
        for each in called:
            events, _ = await self._cluster.api.list(EVENTS, self._cluster.namespace, fields=f"involvedObject.name={each},type=Warning")
            found += events
        newest = max(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""), default=None)
        return str(newest.get("message", "")) if newest is not None else ""

    async def queued(self, uid: str) -> str:
        """What Kueue says of the Job with that ``uid``, in its own words; "" where it says nothing, or we may not ask."""
        return workload.told(await self._workloads(uid))

    async def taken(self, uid: str) -> str:
        """As ``queued``, why Kueue has taken that Job's pods away; "" where it hasn't."""
        return workload.taken(await self._workloads(uid))

    async def _workloads(self, uid: str) -> list[Object]:
        for kind in WORKLOADS:
            try:
                found, _ = await self._cluster.api.list(kind, self._cluster.namespace, f"kueue.x-k8s.io/job-uid={uid}")
                return found
            except ApiMissing:
                continue  # of another version
            except ElasticError as exc:
                log.debug("Kueue's word on a Job can't be had: %s", exc)
        return []

    async def log(self, burst_id: str, rank: int) -> str:
        """The last words of a rank's pod, "" where they can't be had."""
        for pod in self._newest(burst_id).values():
            if _rank(pod) == rank:
                try:
                    container = pod["spec"]["containers"][0]["name"]
                    return (await self._cluster.api.log(self._cluster.namespace, pod["metadata"]["name"], container)).strip()
                except ElasticError:
                    break
        return ""

    def addresses(self, burst_id: str) -> dict[int, str]:
        """Of the pods that run, by rank."""
        return _addresses(self._newest(burst_id))

    def pods(self, burst_id: str, called: Callable[[int], str] = "rank {}".format) -> Pods:
        """``called``: what the one of a number is called, for people."""
        found = self._newest(burst_id)
        return Pods(
            addresses=_addresses(found),
            trouble={rank: said for rank, pod in found.items() if (said := reasons.trouble(pod, called(rank))) is not None},
            ended={rank: _exit_code(pod) for rank, pod in found.items() if reasons.over(pod)},
            count=len(found),
        )

    async def kept(self, what: str, make: Callable[[], dict[str, str]]) -> dict[str, str]:
        """What is made once for this gateway and kept in a Secret, so that the next one has the same. Raises ``ApiError``."""
        api, namespace, name = self._cluster.api, self._cluster.namespace, f"elastic-gateway-{self._cluster.name}-{what}"
        for _ in range(3):
            try:
                data = (await api.get(SECRETS, namespace, name))["data"]
                return {key: b64decode(value).decode() for key, value in data.items()}
            except ApiMissing:
                pass
            labels = {names.MANAGED_BY: names.MANAGER, names.GATEWAY: self._cluster.name}
            body = {
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": name, "labels": labels},
                "data": {key: b64encode(value.encode()).decode() for key, value in make().items()},
            }  # fmt: skip
            try:
                await api.create(SECRETS, namespace, body)
            except ApiConflict:
                continue
        raise ElasticError(f"The Secret {name} comes and goes: does somebody delete it?")

    def address(self) -> str:
        """Of this machine, or pod, as the cluster reaches it most likely: the one by which the API server is reached."""
        return self._cluster.api.own_address()

    def _newest(self, burst_id: str) -> dict[int, reasons.Pod]:
        newest: dict[int, reasons.Pod] = {}
        for pod in self._cluster.ranks():
            if pod["metadata"]["labels"].get(names.BURST) == burst_id:
                rank = _rank(pod)
                if rank not in newest or newest[rank]["metadata"]["creationTimestamp"] <= pod["metadata"]["creationTimestamp"]:
                    newest[rank] = pod
        return newest


def _main(shape: Shape) -> Kind:
    return Kind(shape.group_version, shape.plural)


def _before(shape: Shape) -> Kind:
    return Kind(shape.group_version, shape.before_plural)


def _parts(job: Object, roles: Mapping[str, Object]) -> list[Part]:
    return [Part(ROLE, job), *(Part(name, each) for name, each in roles.items())]


def _addresses(pods: Mapping[int, reasons.Pod]) -> dict[int, str]:
    return {rank: pod["status"]["podIP"] for rank, pod in pods.items() if reasons.running(pod) and pod["status"].get("podIP")}


def _rank(pod: reasons.Pod) -> int:
    labels = pod["metadata"]["labels"]
    text, first = labels.get(INDEX, labels.get(volcano.TASK_INDEX, "")), labels.get(names.FIRST, "0")
    return int(first) + int(text) if text.isdigit() and first.isdigit() else -1


def _exit_code(pod: reasons.Pod) -> int | None:
    for status in pod.get("status", {}).get("containerStatuses") or ():
        ended = status.get("state", {}).get("terminated")
        if ended:
            return int(ended.get("exitCode", 1))
    return None
