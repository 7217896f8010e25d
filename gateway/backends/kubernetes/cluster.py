"""Kernels as pods of a Kubernetes cluster: what it knows comes from one watch, what it makes are manifests.

Nothing here may block the event loop, decide who gets a GPU, or delete a pod without a grace. Whatever it was doing when it was
killed, the next gateway finds and finishes.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import zmq

from ...protocol.errors import ElasticError, LaunchError, SettingError, SupervisorLost
from ...protocol.model import Rung, Spec
from ...settings import ElasticGateway, KubernetesBackend, SimulatedGpu
from ..base import Backend, Claim, Foreign, Warm
from . import names, reasons
from .api import LEASES, PODS, SECRETS, KubeApi
from .code import Code, version
from .ends import Ends
from .errors import ApiConflict, ApiMissing, ApiUnavailable
from .jobs.jobs import Jobs
from .manifests import LINK_PORT, PORTS, Site
from .news import Pods
from .profiles import Profile, chosen, profiles
from .reflector import Reflector
from .slots import Slots
from .starts import Starts, parts
from .supervisor import PodSupervisor
from .warm import WarmKernels

log = logging.getLogger(__name__)

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


class KubernetesCluster(Backend):
    """One namespace of a cluster, for one gateway."""

    remote = True
    direct = False

    def __init__(self, gateway: ElasticGateway, settings: KubernetesBackend, simulated: SimulatedGpu) -> None:
        self._settings, self.profiles = settings, profiles(settings.profiles)
        if settings.default_profile not in self.profiles:
            raise SettingError(
                f"KubernetesBackend.default_profile is {settings.default_profile!r}, and there is no such profile: there are "
                f"{', '.join(self.profiles)}."
            )
        if not settings.code_image:
            raise SettingError("KubernetesBackend.code_image is missing: name the gateway's own image, which slots run.")
        self._site = Site(
            gateway.name, settings.namespace or _own_namespace(), settings.code_image, settings.pull_policy,
            names.code(gateway.name, version()),
        )  # fmt: skip
        self._simulated = None if gateway.simulated_gpus is None else Rung(simulated.rung)
        self._opening = asyncio.Lock()
        self._api: KubeApi | None = None
        self._watch: Reflector
        self._slots: Slots
        self._code: Code
        self._ends: Ends
        self._warm: WarmKernels
        self._starts: Starts
        self._read: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}  # the Secrets' parts of the pods that were found, by uid
        self._cut_short: dict[str, str] = {}  # pods of kernels whose start the gateway before us had begun
        self._pods = Pods(self._site.namespace)
        self.jobs = Jobs(self, settings.job_kinds)

    # what the broker and the provisioner ask

    async def start(self, spec: Spec, told: Callable[[str], None] = lambda text: None) -> PodSupervisor:
        await self._open()
        name = self._cut_short.pop(spec.kernel_id, "")
        if (pod := self.pod(name)) is not None:
            return await self._starts.up(pod, *parts(await self._starts.secret(name)), told)
        profile = chosen(self._profile(spec), spec.env)
        spec = self._for_a_pod(spec, profile)
        return await self._warm.claim(spec, profile) or await self._start(spec, profile, told=told)

    async def find(self) -> list[Any]:
        await self._open()
        pods = [pod for pod in self._pods.of(names.ROLE_KERNEL) if _runs(pod) and pod["metadata"]["uid"] not in self._ends.uids]
        self._read = {uid: self._read[uid] for pod in pods if (uid := pod["metadata"]["uid"]) in self._read}
        # asked for again and again, and the Secrets of pods that are known say nothing new
        secrets = await self._starts.secrets() if len(self._read) < len(pods) else {}
        found: list[Any] = []
        for pod in pods:
            uid = pod["metadata"]["uid"]
            try:
                if uid not in self._read:
                    self._read[uid] = parts(secrets.get(pod["metadata"]["name"]))
                found.append(PodSupervisor(self, pod, *self._read[uid]))
            except SupervisorLost as exc:
                log.warning("The pod %s can't be adopted: %s. To end it: kubectl delete pod.", pod["metadata"]["name"], exc)
        return found

    async def tidy(self) -> None:
        """Clear away what has ended, and finish what takes but one write. Called by the broker at its start, before anything is started."""
        await self._open()
        secrets = await self._starts.secrets()
        for pod in self._pods.of(names.ROLE_KERNEL):
            name = pod["metadata"]["name"]
            if reasons.over(pod) or (name not in secrets and not reasons.running(pod)):
                log.warning("the pod %s has ended, or can never start: deleting it", name)
                await self.delete_pod(name, pod["metadata"]["uid"], 1.0)
        for name, secret in secrets.items():
            owned, pod, spec = secret["metadata"].get("ownerReferences"), self._pods.get(name), _begun(secret)
            if pod is not None and not owned:
                await self._starts.give_to(name, pod)
            if pod is not None and names.WARM in pod["metadata"]["labels"] and spec is not None and not spec.unclaimed:
                await self._warm.finish(pod, spec)
                while (pod := self._pods.get(name)) is not None and names.WARM in pod["metadata"]["labels"]:
                    await self._pods.changed(1.0)  # the watch is a moment behind
            if pod is None and (owned or spec is None or spec.unclaimed):
                log.warning("the Secret %s belongs to no pod: deleting it", name)
                await self._starts.forget_secret(name)
        await self._code.tidy([*self._pods.of(names.ROLE_KERNEL), *self.ranks()])

    async def unfinished(self) -> list[Spec]:
        """Their pods are not there yet, or not yet running."""
        await self._open()
        found = []
        for name, secret in (await self._starts.secrets()).items():
            pod, spec = self._pods.get(name), _begun(secret)
            if spec is None or spec.unclaimed or spec.owner != self._site.gateway:
                continue
            if pod is None or not (reasons.over(pod) or reasons.running(pod) or _leaves(pod)):
                self._cut_short[spec.kernel_id] = name
                found.append(spec)
        return found

    async def at(self, place: str) -> PodSupervisor:
        await self._open()
        pod = self.pod(place)
        if pod is None or reasons.over(pod):
            raise SupervisorLost(f"the pod {place} has ended")
        return PodSupervisor(self, pod, *parts(await self._starts.secret(place)))

    async def generation(self) -> int:
        """Counted in a coordination Lease, so that no two gateways ever have the same."""
        await self._open()
        name = f"elastic-gateway-{self._site.gateway}"
        while True:
            try:
                lease = await self.api.get(LEASES, self._site.namespace, name)
            except ApiMissing:
                # somebody has deleted it under kernels that know its number: above all that was ever counted
                number = int(time.time()) if self._pods.of(names.ROLE_KERNEL) else 1
                labels = {names.MANAGED_BY: names.MANAGER, names.GATEWAY: self._site.gateway}
                body = {**_LEASE, "metadata": {"name": name, "labels": labels}, "spec": {"leaseTransitions": number}}
                try:
                    await self.api.create(LEASES, self._site.namespace, body)
                    return number
                except ApiConflict:
                    continue
            number = int(lease["spec"].get("leaseTransitions") or 0) + 1
            seen = lease["metadata"]["resourceVersion"]
            try:
                await self.api.patch(
                    LEASES, self._site.namespace, name, {"metadata": {"resourceVersion": seen}, "spec": {"leaseTransitions": number}}
                )
                return number
            except ApiConflict:
                await asyncio.sleep(0.05)  # another was quicker

    async def recall(self, name: str) -> str:
        """Kept in a Secret: the gateway may read and write those of its namespace as it is."""
        try:
            secret = await self.api.get(SECRETS, self._site.namespace, names.notes(self._site.gateway))
            return base64.b64decode((secret.get("data") or {}).get(name, "")).decode()
        except ApiMissing:
            return ""
        except ValueError:
            raise ElasticError(f"{name} in the Secret {names.notes(self._site.gateway)} is no text.", reason="not_kept") from None

    async def keep(self, name: str, text: str) -> None:
        secret, said = names.notes(self._site.gateway), {"stringData": {name: text}}
        try:
            await self.api.patch(SECRETS, self._site.namespace, secret, said)
        except ApiMissing:
            labels = {names.MANAGED_BY: names.MANAGER, names.GATEWAY: self._site.gateway}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "labels": labels}, **said}
            await self.api.create(SECRETS, self._site.namespace, body)

    async def claim(self, who: str, ours: Collection[str] = (), known: Set[str] = frozenset()) -> Claim:
        await self._open()
        return self._slots.claim(known)

    def unclaim(self) -> None:
        """Slots stay with the kernels that have them."""

    async def acquire(self, supervisor: Any, gpus: tuple[str, ...]) -> list[str]:
        return await self._slots.acquire(supervisor, gpus)

    def settle(
        self, leases: Mapping[str, tuple[str, ...]], known: Set[str], waiting: Set[str], homes: Mapping[str, tuple[str, ...]]
    ) -> None:  # fmt: skip
        if self._api is not None:
            self._slots.settle(leases, known, waiting, homes)

    def keep_warm(self, specs: Iterable[Spec]) -> None:
        wanted = []
        for spec in specs:
            try:
                profile = self._profile(spec)
            except LaunchError as exc:  # who starts one is told, and nobody else is in its way
                log.warning("no kernel of the kernelspec %s can start: %s", spec.name, exc)
                continue
            if profile.warm:
                wanted.append((self._for_a_pod(spec, profile), profile))
        self._warm.keep(wanted)

    def warm(self) -> Mapping[str, Warm]:
        return {} if self._api is None else self._warm.state()

    async def end_warm(self) -> None:
        if self._api is not None:
            await self._warm.end()
            await self._code.end()

    async def close(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            await self._warm.stop()
            await self._ends.stop()
            await self._slots.stop()
            await self._watch.stop()
            await api.close()

    # what supervisors and slots ask

    @property
    def name(self) -> str:
        """Of the gateway."""
        return self._site.gateway

    @property
    def sees_all(self) -> bool:
        """It may list pods everywhere."""
        return self._settings.foreign_pods

    @property
    def namespace(self) -> str:
        return self._site.namespace

    @property
    def site(self) -> Site:
        return self._site

    def ranks(self) -> list[reasons.Pod]:
        """All pods of bursts, as the watch has them."""
        return self._pods.of(names.ROLE_RANK)

    async def bring_code(self) -> None:
        """Before pods that mount it. Raises ``ApiError``."""
        await self._code.there()

    @property
    def code(self) -> str:
        """The Secret with the code that kernels run."""
        return self._site.code

    @property
    def api(self) -> KubeApi:
        assert self._api is not None
        return self._api

    def pod(self, name: str) -> reasons.Pod | None:
        """As the watch has it."""
        return self._pods.get(name)

    def said_of_node(self, node: str) -> str:
        """The cluster's words on a node that doesn't answer, in brackets."""
        said = self._slots.said_of(node).rstrip(".")
        return f" ({said})" if said else ""

    def node_for(self, profile: Profile, gpus: int, starting: Iterable[tuple[str, int]]) -> str | None:
        """Where a kernel that leases so many GPUs should start; None: it leases none, or anywhere. ``starting``: who else is, for GPUs of
        that kind (node, GPUs)."""
        if not gpus or self.best_node is None:
            return None
        return self.best_node(gpus, self._slots.nodes_for(profile), starting, profile.gpu_resource)

    async def delete_pod(self, name: str, uid: str, grace: float) -> None:
        """Never at once: what runs on a GPU needs its time to leave it."""
        await self.api.delete(PODS, self._site.namespace, name, uid=uid, grace=max(1, round(grace)))
        await self._starts.forget_left(name)

    def delete_pod_later(self, name: str, uid: str, grace: float) -> None:
        """The same, once the cluster answers again."""
        self._ends.later(PODS, name, uid, max(1, round(grace)))

    def delete_secret_later(self, name: str, uid: str | None) -> None:
        self._ends.later(SECRETS, name, uid)

    def until_done(self, what: str, do: Callable[[], Awaitable[None]]) -> None:
        """Have something done that failed because the cluster didn't answer."""
        self._ends.until(what, do)

    # inside

    async def _open(self) -> None:
        async with self._opening:
            if self._api is not None:
                return
            api = await KubeApi.connect(self._settings.context or None, self._settings.kubeconfig or None)
            watch = Reflector(api, PODS, self._site.namespace, names.selector(self._site.gateway), on_event=self._pods.told)
            self._pods.cache = watch.cache
            slots = Slots(api, self._pods, self._site, self.profiles, self._simulated, self._freed, self._taken)
            self._pods.listener = slots.heard
            try:
                watch.start()
                await asyncio.wait_for(watch.synced.wait(), self._settings.connect_timeout)
                await slots.start(self._settings.connect_timeout, self._pressed if self._settings.foreign_pods else None)
            except BaseException as exc:
                await slots.stop()
                await watch.stop()
                await api.close()
                if isinstance(exc, TimeoutError):
                    raise ApiUnavailable(
                        f"The cluster has not answered within {self._settings.connect_timeout:g} s (KubernetesBackend.connect_timeout): "
                        "is it up, and may this gateway list pods in the namespace "
                        f"{self._site.namespace}?"
                    ) from None
                raise
            self._code, self._ends = (code := Code(api, self._site)), Ends(api, self._site.namespace)
            self._api, self._watch, self._slots, self._starts = api, watch, slots, Starts(self, self._pods, self._site, code)
            self._warm = WarmKernels(self, self._starts, self._pods, self._start)

    def _pressed(self, pods: tuple[Foreign, ...]) -> None:
        self.waiting_outside = pods
        if self.on_foreign is not None:
            self.on_foreign(pods)

    def _taken(self, units: tuple[str, ...]) -> None:
        if self.on_taken is not None:
            self.on_taken(units)

    def _freed(self) -> None:
        if self.on_freed is not None:
            self.on_freed()

    def _profile(self, spec: Spec) -> Profile:
        name = str(spec.metadata.get("profile") or self._settings.default_profile)
        if name not in self.profiles:
            raise LaunchError(f"The kernelspec asks for the profile {name!r}, and there are: {', '.join(self.profiles)}.")
        return self.profiles[name]

    async def _start(
        self, spec: Spec, profile: Profile, warm: str = "", told: Callable[[str], None] = lambda text: None
    ) -> PodSupervisor:  # fmt: skip
        public, secret = _keys()
        client, client_secret = _keys()
        spec = replace(spec, link_curve={"publickey": public, "secretkey": secret, "client": client})
        owner = {"secretkey": client_secret, "profile": profile.name, "made_from": asdict(profile)}
        pod = await self._starts.make(spec, profile, owner, warm)
        return await self._starts.up(pod, spec.to_json(), owner, told)

    def _for_a_pod(self, spec: Spec, profile: Profile) -> Spec:
        plain_public, plain_secret = _keys()
        cwd = spec.env.get("KERNEL_WORKING_DIR") or profile.working_dir
        leases = bool(profile.gpu_resource) and not profile.for_life
        return replace(
            spec, ip="0.0.0.0", ports=dict(PORTS), curve_publickey=plain_public, curve_secretkey=plain_secret,
            link_ip="0.0.0.0", link_port=LINK_PORT,
            kernel_transport="ipc", env={**profile.env, **spec.env}, inherit_env=True, cwd=cwd, fallback_cwd=profile.working_dir,
            gpus=spec.gpus if leases else 0, owner_pid=None, owner_started=None, lock_dir=None,
        )  # fmt: skip


def _keys() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _begun(secret: Mapping[str, Any]) -> Spec | None:
    """What was to be started, None where that can't be read."""
    try:
        return Spec.from_json(parts(secret)[0])
    except (SupervisorLost, TypeError):
        return None


def _runs(pod: reasons.Pod) -> bool:
    """It is somebody's, and there."""
    there = reasons.running(pod) and not reasons.over(pod) and not _leaves(pod)
    return there and names.WARM not in pod["metadata"]["labels"]


def _leaves(pod: reasons.Pod) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _own_namespace() -> str:
    """Where this gateway itself runs, else "default"."""
    try:
        return _NAMESPACE.read_text().strip() or "default"
    except OSError:
        return "default"
