"""Slots: what the scheduler believes of our leases. One small pod a lease, on the kernel's node, that really requests its GPUs.

The book leases units, ``node/resource/number``, as many as a node has; a unit is ours once its slot is bound. A slot is ended only when
the book says that nobody has its units, never while a kernel that doesn't answer may be on them, and it ends itself only once its GPUs
are empty. It must never decide who gets a unit.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import ElasticError
from ...protocol.model import Gpu, Rung
from ..base import Claim, Foreign, GpusTaken
from . import manifests, names, reasons
from .api import NODES, PODS, KubeApi
from .errors import ApiConflict, ApiDenied
from .manifests import Site
from .news import Pods
from .pressure import Pressure, allocatable, requested
from .profiles import Profile
from .reasons import Pod
from .reflector import Reflector
from .supervisor import PodSupervisor

log = logging.getLogger(__name__)

UNITS = f"{names.PREFIX}/units"  # annotation of a slot: a JSON list
BIND_SECONDS = 10.0  # after which a slot that the scheduler says nothing about counts as one that can't be had
ROOM_SECONDS = 3.0  # for the scheduler to notice what a slot of ours has left
TRY_AGAIN_SECONDS = 5.0  # after which a unit that others had is tried again
_PRODUCT, _MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"  # labels of NVIDIA's feature discovery


class Slots:
    """Of one gateway. ``simulated``: what the driver of simulated devices can do, of which none has to be reported; None: they are
    real. ``freed`` is called when a unit that others had is
    to be had, ``taken`` with the units of a slot that others end: a node that is emptied, a pod of higher priority, somebody's hand."""

    def __init__(
        self, api: KubeApi, pods: Pods, site: Site, profiles: Mapping[str, Profile], simulated: Rung | None,
        freed: Callable[[], None], taken: Callable[[tuple[str, ...]], None],
    ) -> None:  # fmt: skip
        self._freed, self._taken_back = freed, taken
        self._told: set[str] = set()  # uids of slots that others end, as the broker has been told
        self._api, self._pods, self._site, self._profiles, self._simulated = api, pods, site, profiles, simulated
        self._resources = sorted({each.gpu_resource for each in profiles.values() if each.gpu_resource and not each.for_life})
        self._nodes: Reflector | None = None
        self._pressure: Pressure | None = None
        self._taken: dict[str, tuple[float, str]] = {}  # units that others had: until when that is believed, and what was said
        self._devices: dict[str, list[str]] = {}  # by slot's uid
        self._scouts: dict[str, _Scout] = {}  # slots, by uid, that wait at the scheduler for what others have
        self._busy: set[str] = set()  # slots that are being made or handed over, by name
        self._ending: set[str] = set()  # by uid
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, seconds: float, pressed: Callable[[tuple[Foreign, ...]], None] | None) -> None:
        """``pressed``: told which pods of others wait for what slots have; None: nobody looks. Raises ``TimeoutError`` where the nodes
        can't be listed within so many seconds."""
        if self._resources:
            self._nodes = Reflector(self._api, NODES, None)
            self._nodes.start()
            await asyncio.wait_for(self._nodes.synced.wait(), seconds)
            if pressed is not None:
                self._pressure = Pressure(self._api, self._resources, self._nodes.cache, pressed)
                self._pressure.start()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for watch in (self._pressure, self._nodes):
            if watch is not None:
                await watch.stop()

    # units

    def claim(self, known: Set[str]) -> Claim:
        """All units of all nodes. ``known``: the kernels that we can speak with; units of others' slots aren't ours to lease."""
        now, gpus = time.monotonic(), []
        foreign = {unit: said for unit, (until, said) in self._taken.items() if until > now}
        for pod in self._pods.of(names.ROLE_SLOT):
            uid = pod["metadata"]["uid"]
            if uid in self._scouts and pod["spec"].get("nodeName"):  # it is to be had, by whoever waits
                del self._scouts[uid]
                foreign = {unit: said for unit, said in foreign.items() if unit not in _units(pod)}
            elif uid in self._scouts:
                foreign |= dict.fromkeys(_missing(_units(pod)), self._scouts[uid].why)
            elif self._kernel_out_of_reach(pod, known):
                foreign |= dict.fromkeys(_units(pod), f"the kernel of {pod['metadata']['name']}, which doesn't answer")
        for node in self._nodes.cache.values() if self._nodes is not None else ():
            for resource in self._resources:
                gpus += [self._unit(node, resource, number) for number in range(allocatable(node, resource))]
        return Claim(tuple(gpus), foreign, returns=foreign)

    def nodes_for(self, profile: Profile) -> list[str]:
        """Where a kernel of this profile may be and lease."""
        nodes = self._nodes.cache.values() if self._nodes is not None else ()
        return sorted(
            node["metadata"]["name"]
            for node in nodes
            if profile.node_selector.items() <= (node["metadata"].get("labels") or {}).items()
            and not node["spec"].get("unschedulable")
            and allocatable(node, profile.gpu_resource)
        )

    async def acquire(self, supervisor: PodSupervisor, units: tuple[str, ...]) -> list[str]:
        """Have a slot for exactly these units; what CUDA knows them as. Raises ``GpusTaken`` where others have some of them or the
        cluster gives none just now."""
        name = slot_name(units)
        self._busy.add(name)
        try:
            pod = await self._handed_over(name, supervisor) or await self._made(name, supervisor, units)
            return await self._known(pod, units)
        except ApiDenied as exc:
            raise self._not_now(units, f"the cluster, which gives no more: {exc}") from exc
        except GpusTaken:
            raise
        except ElasticError as exc:
            raise self._not_now(units, f"the cluster, which doesn't answer: {exc}") from exc
        finally:
            self._busy.discard(name)

    def heard(self, kind: str, pod: Pod) -> None:
        """A pod has changed. A slot stays as long as somebody is on its GPUs, but no longer than its grace: its kernel has to leave."""
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("labels", {}).get(names.ROLE) != names.ROLE_SLOT or uid in self._ending:
            return
        if (kind == "DELETED" or not _lives(pod)) and uid not in self._told and uid not in self._scouts:
            self._told.add(uid)
            self._taken_back(tuple(_units(pod)))
        if kind == "DELETED":
            self._told.discard(uid)

    def settle(
        self, leases: Mapping[str, tuple[str, ...]], known: Set[str], waiting: Set[str], homes: Mapping[str, tuple[str, ...]]
    ) -> None:  # fmt: skip
        """``leases``: the units of each kernel now. Slots that are nobody's lease as it is are ended, but for those that wait for what
        others have while a kernel of their node does (``waiting``), and those whose devices parked kernels need again (``homes``):
        another slot of their units might get others."""
        wanted, leased = {slot_name(units) for units in leases.values()}, {unit for units in leases.values() for unit in units}
        at_home: dict[str, list[str]] = {}
        for kernel_id, units in homes.items():
            if self._of_node(units[0]) > len(units):
                at_home.setdefault(slot_name(units), []).append(kernel_id)
        for pod in self._pods.of(names.ROLE_SLOT):
            name, uid, units = pod["metadata"]["name"], pod["metadata"]["uid"], _units(pod)
            if name in self._busy or uid in self._ending or pod["metadata"].get("deletionTimestamp"):
                continue
            if name in wanted or self._kernel_out_of_reach(pod, known):
                continue
            if name in at_home and leased.isdisjoint(units):
                self._keep(pod, at_home[name])
                continue
            scout = self._scouts.get(uid)
            if scout is not None and any(_split(unit)[0] in waiting for unit in units):
                if leased.isdisjoint(units):
                    continue
                if leased.isdisjoint(_missing(units)):  # what it was to have is somebody's in part: look for the rest alone
                    self._do(self._look_for(scout.supervisor, _missing(units)))
            self._ending.add(uid)
            self._do(self._end(name, uid))

    def said_of(self, node: str) -> str:
        """Why the cluster thinks that a node isn't ready, in its own words; "" where it says nothing."""
        found = self._nodes.cache.get(("", node)) if self._nodes is not None else None
        for condition in (found or {}).get("status", {}).get("conditions") or ():
            if condition.get("type") == "Ready" and condition.get("status") != "True":
                return str(condition.get("message") or condition.get("reason") or "")
        return ""

    # inside

    def _keep(self, pod: Pod, kernels: list[str]) -> None:
        """A slot goes with its last kernel: if that needs it no more, it is to go with one that does."""
        labels = {names.slug(kernel_id, 63) for kernel_id in kernels}
        heirs = [
            each for each in self._pods.of(names.ROLE_KERNEL) if each["metadata"]["labels"].get(names.KERNEL) in labels and _lives(each)
        ]
        if pod["metadata"]["labels"].get(names.KERNEL) not in labels and heirs:
            self._do(self._give(pod["metadata"]["name"], pod["metadata"]["uid"], heirs[0]))

    async def _give(self, name: str, uid: str, kernel: Pod) -> None:
        labels = {label: kernel["metadata"]["labels"].get(label) for label in (names.KERNEL, names.USER)}
        owner = manifests.owner_reference({"name": kernel["metadata"]["name"], "uid": kernel["metadata"]["uid"]})
        self._busy.add(name)
        try:
            change = {"metadata": {"uid": uid, "labels": labels, "ownerReferences": [owner]}}
            await self._api.patch(PODS, self._site.namespace, name, change)
        except ElasticError as exc:
            log.warning("the slot %s can't be given to another kernel: %s", name, exc)
        finally:
            self._busy.discard(name)

    def _of_node(self, unit: str) -> int:
        """How many units of its kind its node has."""
        node, resource, _ = _split(unit)
        found = self._nodes.cache.get(("", node)) if self._nodes is not None else None
        return 0 if found is None else allocatable(found, resource)

    async def _handed_over(self, name: str, supervisor: PodSupervisor) -> Pod | None:
        """A living slot of these units that the scheduler has bound, now of this kernel; None where there is none."""
        pod = self._pods.get(name)
        if pod is None or not _lives(pod) or not pod["spec"].get("nodeName") or pod["metadata"]["uid"] in self._ending:
            return None
        self._scouts.pop(pod["metadata"]["uid"], None)
        labels = names.labels(self._site.gateway, names.ROLE_SLOT, supervisor.kernel_id, supervisor.user)
        owner = manifests.owner_reference({"name": supervisor.place, "uid": supervisor.uid})
        change = {"metadata": {"uid": pod["metadata"]["uid"], "labels": labels, "ownerReferences": [owner]}}
        return await self._api.patch(PODS, self._site.namespace, name, change)

    async def _made(self, name: str, supervisor: PodSupervisor, units: tuple[str, ...]) -> Pod:
        # as it was started, whatever has become of its profile; an older gateway didn't keep that
        alike = (each for each in self._profiles.values() if each.gpu_resource == _split(units[0])[1])
        profile = supervisor.made_from or next(alike)
        owner = {"name": supervisor.place, "uid": supervisor.uid}
        body = manifests.slot_pod(
            self._site, profile, name, supervisor.kernel_id, supervisor.user, supervisor.node, len(units), owner
        )  # fmt: skip
        body["metadata"]["annotations"][UNITS] = json.dumps(units)
        until = time.monotonic() + manifests.SLOT_PATIENCE + BIND_SECONDS
        while True:
            try:
                pod = await self._api.create(PODS, self._site.namespace, body)
                break
            except ApiConflict:  # the one before is on its way out
                if time.monotonic() > until:
                    raise self._not_now(units, f"its last kernel, which has not left it: see the pod {name}") from None
                await self._pods.changed(0.2)
        return await self._bound(pod, units, supervisor)

    async def _look_for(self, supervisor: PodSupervisor, units: tuple[str, ...]) -> None:
        """Have a slot wait at the scheduler for units that others have."""
        name = slot_name(units)
        self._busy.add(name)
        try:
            await self._made(name, supervisor, units)
        except ElasticError:
            return  # it waits
        finally:
            self._busy.discard(name)
        for unit in units:
            self._taken.pop(unit, None)
        self._freed()

    async def _bound(self, pod: Pod, units: tuple[str, ...], supervisor: PodSupervisor) -> Pod:
        """Once the scheduler has given it its GPUs, all at once. Raises ``GpusTaken``."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        until, room_until = time.monotonic() + BIND_SECONDS, 0.0
        try:
            while True:
                now = self._pods.get(name)
                if now is not None and now["metadata"]["uid"] == uid:
                    trouble = reasons.trouble(now)
                    if now["spec"].get("nodeName") and not (trouble and trouble.final):
                        return now
                    if self._leaving(units):
                        room_until = time.monotonic() + ROOM_SECONDS
                    if trouble is not None and (trouble.final or time.monotonic() >= room_until):
                        why = f"{self._others(units[0])}other pods of the cluster ({trouble.words or trouble.message})"
                        if trouble.reason != "unschedulable":
                            raise self._not_now(units, why)
                        self._scouts[uid] = _Scout(supervisor, why)
                        self._do(self._until_freed(name, uid))
                        raise self._not_now(_missing(units), why)
                if time.monotonic() > until:
                    raise self._not_now(units, f"the scheduler, which has not bound the pod {name} within {BIND_SECONDS:g} s")
                await self._pods.changed(0.5)
        except BaseException:
            if uid not in self._scouts:
                self._ending.add(uid)
                self._do(self._end(name, uid, 1.0))
            raise

    def _others(self, unit: str) -> str:
        """Whose cells on many workers have GPUs such as that, as a sentence goes on."""
        node, resource, _ = _split(unit)
        there = [pod for pod in self._pods.of(names.ROLE_RANK) if pod["spec"].get("nodeName") == node and not reasons.over(pod)]
        users = {pod["metadata"]["labels"].get(names.USER, "") for pod in there if requested(pod, resource)}
        return f"cells on many workers ({', '.join(sorted(users))}) or " if users else ""

    async def _until_freed(self, name: str, uid: str) -> None:
        """A slot that nobody could have stays at the scheduler, which gives it the GPU as soon as others leave it."""
        while uid in self._scouts:
            pod = self._pods.get(name)
            if pod is None or pod["metadata"]["uid"] != uid or not _lives(pod):
                del self._scouts[uid]
            elif pod["spec"].get("nodeName"):
                self._freed()
                return
            else:
                await self._pods.changed()

    async def _known(self, pod: Pod, units: tuple[str, ...]) -> list[str]:
        """What the slot says it got; where there is but one to get, at once."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if self._simulated is not None:
            return list(units)
        if uid in self._devices:
            return self._devices[uid]
        if self._of_node(units[0]) == len(units):
            return [str(number) for number in range(len(units))]
        while True:
            now = self._pods.get(name)
            trouble = None if now is None else reasons.trouble(now)
            if now is None or now["metadata"]["uid"] != uid or (trouble is not None and trouble.final):
                raise self._not_now(units, f"a slot that came to nothing: {trouble.message if trouble else f'the pod {name} was deleted'}")
            if reasons.running(now):
                devices = _reported(await self._api.log(self._site.namespace, name, "slot"))
                if len(devices) == len(units):
                    self._devices[uid] = devices
                    return devices
            await self._pods.changed(0.1)

    async def _end(self, name: str, uid: str, grace: float = manifests.SLOT_PATIENCE + 5) -> None:
        pause = 0.2
        while True:
            try:
                await self._api.delete(PODS, self._site.namespace, name, uid=uid, grace=max(1, round(grace)))
                return
            except ApiConflict:
                return  # another pod has that name by now
            except ElasticError as exc:
                log.warning("the slot %s can't be ended now: %s", name, exc)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)

    def _leaving(self, units: tuple[str, ...]) -> bool:
        """A slot of ours on that node is on its way out: what it had is free in a moment."""
        node = _split(units[0])[0]
        return any(
            pod["spec"].get("nodeName") == node and not reasons.over(pod) and (not _lives(pod) or pod["metadata"]["uid"] in self._ending)
            for pod in self._pods.of(names.ROLE_SLOT)
        )

    def _kernel_out_of_reach(self, pod: Pod, known: Set[str]) -> bool:
        """The slot's kernel lives and nobody here can speak with it: it may be on the GPU."""
        label = pod["metadata"]["labels"].get(names.KERNEL)
        if label in {names.slug(kernel_id, 63) for kernel_id in known}:
            return False
        return any(
            each["metadata"]["labels"].get(names.KERNEL) == label and not reasons.over(each) for each in self._pods.of(names.ROLE_KERNEL)
        )

    def _not_now(self, units: tuple[str, ...], why: str) -> GpusTaken:
        """``why`` is what people read after "held by"."""
        why = why.rstrip(".")  # the sentence goes on
        until = time.monotonic() + TRY_AGAIN_SECONDS
        self._taken |= dict.fromkeys(units, (until, why))
        return GpusTaken(why, units)

    def _unit(self, node: Pod, resource: str, number: int) -> Gpu:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        memory = labels.get(_MEMORY, "")
        return Gpu(
            f"{name}/{resource}/{number}", name, (labels.get(_PRODUCT) or resource.rpartition("/")[2]).lower(),
            int(memory) << 20 if memory.isdigit() else 0, self._simulated is not None, self._simulated or Rung.ANYWHERE,
            "as the kernel's own supervisor says", resource,
        )  # fmt: skip

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True)
class _Scout:
    """A slot that waits at the scheduler: for whom, and what the scheduler says."""

    supervisor: PodSupervisor
    why: str


def _missing(units: Sequence[str]) -> tuple[str, ...]:
    """Of those that a slot can't have all of: one that others have, as far as one knows. Which one it is makes no difference, as the
    units of a node are alike."""
    return tuple(units[-1:])


def slot_name(units: tuple[str, ...]) -> str:
    """The same for the same units, so that there is never a second slot of them."""
    node, resource, _ = _split(units[0])
    numbers = ",".join(sorted(_split(unit)[2] for unit in units))
    return f"slot-{names.slug(node)}-{hashlib.sha256(f'{resource} {numbers}'.encode()).hexdigest()[:8]}"


def _split(unit: str) -> tuple[str, str, str]:
    node, _, rest = unit.partition("/")
    resource, _, number = rest.rpartition("/")
    return node, resource, number


def _units(pod: Pod) -> list[str]:
    try:
        return [str(unit) for unit in json.loads(pod["metadata"].get("annotations", {}).get(UNITS, "[]"))]
    except ValueError:
        return []


def _lives(pod: Pod) -> bool:
    return not reasons.over(pod) and not pod["metadata"].get("deletionTimestamp")


def _reported(text: str) -> list[str]:
    """The devices that a slot names in its first line of JSON, [] where it hasn't yet."""
    for line in text.splitlines():
        try:
            said = json.loads(line)
            return [str(device) for device in said["devices"]]
        except (ValueError, KeyError, TypeError):
            continue
    return []
