"""Kernels as pods of a Kubernetes cluster: what it knows comes from one watch, what it makes are manifests.

Nothing here may block the event loop, decide who gets a GPU, or delete a pod without a grace. Whatever it was doing when it was
killed, the next gateway finds and finishes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import zmq

from ...protocol.errors import ElasticError, LaunchError, SettingError, SupervisorLost
from ...protocol.model import Spec
from ...settings import ElasticGateway, KubernetesBackend
from ..base import Backend, Claim, Foreign
from . import manifests, names, reasons
from .api import LEASES, PODS, SECRETS, KubeApi
from .errors import ApiConflict, ApiDenied, ApiMissing, ApiUnavailable
from .manifests import LINK_PORT, PORTS, Site
from .news import Pods
from .profiles import Profile, chosen, profiles
from .reflector import Reflector
from .slots import Slots
from .supervisor import PodSupervisor, gone

log = logging.getLogger(__name__)

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
GONE_SECONDS = 45.0  # within which a pod that was deleted has ended, unless its node is lost
LISTEN_SECONDS = 20.0  # from a container that runs to a supervisor that listens

_LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


class KubernetesCluster(Backend):
    """One namespace of a cluster, for one gateway."""

    remote = True
    direct = False

    def __init__(self, gateway: ElasticGateway, settings: KubernetesBackend) -> None:
        self._settings, self.profiles = settings, profiles(settings.profiles)
        if settings.default_profile not in self.profiles:
            raise SettingError(
                f"KubernetesBackend.default_profile is {settings.default_profile!r}, and there is no such profile: there are "
                f"{', '.join(self.profiles)}."
            )
        if not settings.code_image:
            raise SettingError("KubernetesBackend.code_image is missing: name the gateway's own image, whose code kernels run.")
        self._site = Site(gateway.name, settings.namespace or _own_namespace(), settings.code_image, settings.pull_policy)
        self._simulated = gateway.simulated_gpus is not None
        self._opening = asyncio.Lock()
        self._api: KubeApi | None = None
        self._watch: Reflector
        self._slots: Slots
        self._pods = Pods(self._site.namespace)

    # what the broker and the provisioner ask

    async def start(self, spec: Spec, told: Callable[[str], None] = lambda text: None) -> PodSupervisor:
        await self._open()
        profile = chosen(self._profile(spec), spec.env)
        client_public, client_secret = _keys()
        wanted = min(spec.gpus, profile.gpus)
        spec = self._for_a_pod(spec, profile, client_public)
        name = names.kernel_pod(spec.kernel_id)
        owner = {"secretkey": client_secret, "profile": profile.name}
        try:
            pod = await self._make(spec, profile, owner, wanted)
        except ApiDenied as exc:
            raise LaunchError(f"The cluster refuses this kernel's pod: {exc}", reason="quota" if exc.quota else "denied") from exc
        uid = pod["metadata"]["uid"]
        try:
            pod = await self._until_it_runs(name, uid, told)
            supervisor = PodSupervisor(self, pod, spec.to_json(), owner)
            await self._until_it_listens(supervisor)
            return supervisor
        except BaseException:
            await asyncio.shield(self._undo(name, uid))
            raise

    async def find(self) -> list[Any]:
        await self._open()
        secrets = await self._secrets()
        found: list[Any] = []
        for pod in self._pods.of(names.ROLE_KERNEL):
            if reasons.over(pod) or not reasons.running(pod) or pod["metadata"].get("deletionTimestamp"):
                continue
            try:
                found.append(PodSupervisor(self, pod, *_parts(secrets.get(pod["metadata"]["name"]))))
            except SupervisorLost as exc:
                log.warning("%s", exc)
        return found

    async def tidy(self) -> None:
        """Clear away what a gateway that was killed has left half made. Called by the broker at its start, before anything is started."""
        await self._open()
        secrets = await self._secrets()
        for pod in self._pods.of(names.ROLE_KERNEL):
            name = pod["metadata"]["name"]
            if reasons.over(pod) or not reasons.running(pod):
                log.warning("the pod %s was never finished, or has ended: deleting it", name)
                await self.delete_pod(name, pod["metadata"]["uid"], 1.0)
        for name, secret in secrets.items():
            pod = self._pods.get(name)
            if pod is None:
                log.warning("the Secret %s belongs to no pod: deleting it", name)
                await self.api.delete(SECRETS, self._site.namespace, name)
            elif not secret["metadata"].get("ownerReferences"):
                await self._give_to(name, pod)

    async def at(self, place: str) -> PodSupervisor:
        await self._open()
        pod = self.pod(place)
        if pod is None or reasons.over(pod):
            raise SupervisorLost(f"the pod {place} has ended")
        return PodSupervisor(self, pod, *_parts(await self._secret(place)))

    async def generation(self) -> int:
        """Counted in a coordination Lease, so that no two gateways ever have the same."""
        await self._open()
        name = f"elastic-gateway-{self._site.gateway}"
        while True:
            try:
                lease = await self.api.get(LEASES, self._site.namespace, name)
            except ApiMissing:
                body = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": name},
                    "spec": {"leaseTransitions": 1},
                }
                try:
                    await self.api.create(LEASES, self._site.namespace, body)
                    return 1
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

    async def claim(self, who: str, ours: Collection[str] = (), known: Set[str] = frozenset()) -> Claim:
        await self._open()
        return self._slots.claim(known)

    def unclaim(self) -> None:
        """Slots stay with the kernels that have them."""

    async def acquire(self, supervisor: Any, gpus: tuple[str, ...]) -> list[str]:
        return await self._slots.acquire(supervisor, gpus)

    def settle(self, owners: Mapping[str, str], known: Set[str]) -> None:
        if self._api is not None:
            self._slots.settle(owners, known)

    async def uses(self, kernel_pid: int, gpus: Iterable[str], seconds: float) -> bool:
        return False  # the kernel's node knows, and nobody here sees it

    async def close(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            await self._slots.stop()
            await self._watch.stop()
            await api.close()

    # what supervisors and slots ask

    @property
    def api(self) -> KubeApi:
        assert self._api is not None
        return self._api

    def pod(self, name: str) -> reasons.Pod | None:
        """As the watch has it."""
        return self._pods.get(name)

    async def delete_pod(self, name: str, uid: str, grace: float) -> None:
        """Never at once: what runs on a GPU needs its time to leave it."""
        await self.api.delete(PODS, self._site.namespace, name, uid=uid, grace=max(1, round(grace)))

    # inside

    async def _open(self) -> None:
        async with self._opening:
            if self._api is not None:
                return
            api = await KubeApi.connect(self._settings.context or None, self._settings.kubeconfig or None)
            watch = Reflector(api, PODS, self._site.namespace, names.selector(self._site.gateway), on_event=self._pods.told)
            self._pods.cache = watch.cache
            slots = Slots(api, self._pods, self._site, self.profiles, self._simulated)
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
            self._api, self._watch, self._slots = api, watch, slots

    def _pressed(self, pods: tuple[Foreign, ...]) -> None:
        if self.on_foreign is not None:
            self.on_foreign(pods)

    def _profile(self, spec: Spec) -> Profile:
        name = str(spec.metadata.get("profile") or self._settings.default_profile)
        if name not in self.profiles:
            raise LaunchError(f"The kernelspec asks for the profile {name!r}, and there are: {', '.join(self.profiles)}.")
        return self.profiles[name]

    def _for_a_pod(self, spec: Spec, profile: Profile, client: str) -> Spec:
        public, secret = _keys()
        plain_public, plain_secret = _keys()
        cwd = spec.env.get("KERNEL_WORKING_DIR") or profile.working_dir
        leases = bool(profile.gpu_resource) and not profile.for_life
        return replace(
            spec, ip="0.0.0.0", ports=dict(PORTS), curve_publickey=plain_public, curve_secretkey=plain_secret,
            link_ip="0.0.0.0", link_port=LINK_PORT, link_curve={"publickey": public, "secretkey": secret, "client": client},
            kernel_transport="ipc", env={**profile.env, **spec.env}, inherit_env=True, cwd=cwd, fallback_cwd=profile.working_dir,
            gpus=spec.gpus if leases else 0, owner_pid=None, owner_started=None, lock_dir=None,
        )  # fmt: skip

    async def _make(self, spec: Spec, profile: Profile, owner: Mapping[str, Any], gpus: int) -> reasons.Pod:
        """Secret, then pod; then the Secret goes with the pod."""
        site, name = self._site, names.kernel_pod(spec.kernel_id)
        secret = manifests.secret(site, spec.kernel_id, spec.user, spec.to_json(), owner)
        await self._create_anew(SECRETS, name, secret)
        try:
            pod = await self._create_anew(
                PODS, name, manifests.kernel_pod(site, profile, spec.kernel_id, spec.user, spec.gpus or profile.gpus, self.drained)
            )
        except BaseException:
            await asyncio.shield(self._forget_secret(name))
            raise
        await self._give_to(name, pod)
        return pod

    async def _give_to(self, name: str, pod: reasons.Pod) -> None:
        """The Secret goes with its pod."""
        reference = manifests.owner_reference({"name": name, "uid": pod["metadata"]["uid"]})
        await self.api.patch(SECRETS, self._site.namespace, name, {"metadata": {"ownerReferences": [reference]}})

    async def _create_anew(self, kind: Any, name: str, body: dict[str, Any]) -> reasons.Pod:
        """What an earlier kernel of that id has left gives way; one that lives does not."""
        while True:
            try:
                return await self.api.create(kind, self._site.namespace, body)
            except ApiConflict:
                old = self.pod(name)
                if old is not None and not reasons.over(old) and not old["metadata"].get("deletionTimestamp"):
                    raise LaunchError(
                        f"A kernel of that id runs already, in the pod {name}: connect to it, or choose another id."
                    ) from None
                if kind is SECRETS:
                    await self.api.delete(SECRETS, self._site.namespace, name)
                elif old is not None:
                    await self.delete_pod(name, old["metadata"]["uid"], 1.0)
                    if not await gone(lambda: self.pod(name) is None, GONE_SECONDS):
                        node = old["spec"].get("nodeName", "unknown")
                        raise LaunchError(
                            f"The pod {name} of this kernel's last life has not ended: its node {node} is lost, or very slow. Start the "
                            "notebook with another kernel, or ask the cluster's administrator to remove the node."
                        ) from None
                else:
                    await asyncio.sleep(0.1)  # the watch is a moment behind

    async def _until_it_runs(self, name: str, uid: str, told: Callable[[str], None]) -> reasons.Pod:
        """Raises ``LaunchError`` as soon as it is known that it never will."""
        said = ""
        while True:
            pod = self.pod(name)
            if pod is not None and pod["metadata"]["uid"] == uid:
                trouble = reasons.trouble(pod)
                if trouble is not None and trouble.final:
                    words = await self._log(name) if trouble.reason in ("exited", "oom", "init") else ""
                    raise LaunchError(trouble.message + (f"\nIts last words:\n{words}" if words else ""), reason=trouble.reason)
                if trouble is not None and trouble.message != said:
                    said = trouble.message
                    told(said)
                if reasons.running(pod) and pod["status"].get("podIP"):
                    return pod
            await self._pods.changed()

    async def _until_it_listens(self, supervisor: PodSupervisor) -> None:
        host, waited = supervisor.connection["ip"], 0.0
        while waited < LISTEN_SECONDS:
            try:
                async with asyncio.timeout(2.0):
                    _, writer = await asyncio.open_connection(host, LINK_PORT)
                writer.close()
                return
            except (OSError, TimeoutError):
                if not supervisor.alive():
                    words = await self._log(supervisor.place)
                    raise LaunchError(f"{supervisor.obituary()}{f' Its last words:{chr(10)}{words}' if words else ''}") from None
                await asyncio.sleep(0.05)
                waited += 0.05
        raise LaunchError(
            f"The kernel's pod {supervisor.place} runs and nobody listens on {host}:{LINK_PORT}: does a NetworkPolicy keep the gateway out?"
        )

    async def _undo(self, name: str, uid: str) -> None:
        try:
            await self.delete_pod(name, uid, 1.0)
        except ElasticError as exc:
            log.warning("the pod %s could not be deleted, and is when the gateway starts again: %s", name, exc)

    async def _forget_secret(self, name: str) -> None:
        try:
            await self.api.delete(SECRETS, self._site.namespace, name)
        except ElasticError as exc:
            log.warning("the Secret %s could not be deleted, and is when the gateway starts again: %s", name, exc)

    async def _log(self, name: str) -> str:
        for container in ("kernel", "code"):
            try:
                words = (await self.api.log(self._site.namespace, name, container)).strip()
            except ElasticError:
                continue
            if words:
                return words
        return ""

    async def _secrets(self) -> dict[str, Any]:
        selector = names.selector(self._site.gateway, names.ROLE_KERNEL)
        return {each["metadata"]["name"]: each for each in (await self.api.list(SECRETS, self._site.namespace, selector))[0]}

    async def _secret(self, name: str) -> Any:
        try:
            return await self.api.get(SECRETS, self._site.namespace, name)
        except ApiMissing:
            return None


def _keys() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _parts(secret: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the supervisor was told, and what its gateway keeps."""
    try:
        data = (secret or {})["data"]
        return json.loads(b64decode(data[manifests.SPEC_KEY])), json.loads(b64decode(data[manifests.OWNER_KEY]))
    except (KeyError, ValueError) as exc:
        raise SupervisorLost(f"a kernel's Secret is missing or can't be read ({exc!r}): the kernel goes on, out of reach") from None


def _own_namespace() -> str:
    """Where this gateway itself runs, else "default"."""
    try:
        return _NAMESPACE.read_text().strip() or "default"
    except OSError:
        return "default"
