"""From a spec to a supervisor that listens: Secret, pod, and every reason why it may not come up.

It must never leave anything of a start that has failed, nor delete what lives.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ElasticError, LaunchError, SupervisorLost
from ...protocol.model import Spec
from . import manifests, names, reasons
from .api import PODS, SECRETS
from .code import Code
from .errors import ApiConflict, ApiDenied, ApiMissing
from .manifests import LINK_PORT, Site
from .news import Pods
from .profiles import Profile
from .supervisor import PodSupervisor, gone

if TYPE_CHECKING:
    from .cluster import KubernetesCluster

log = logging.getLogger(__name__)

GONE_SECONDS = 45.0  # within which a pod that was deleted has ended, unless its node is lost
LISTEN_SECONDS = 20.0  # from a container that runs to a supervisor that listens


class Starts:
    """Of one gateway's kernels."""

    def __init__(self, cluster: KubernetesCluster, pods: Pods, site: Site, code: Code) -> None:
        self._cluster, self._pods, self._site, self._code = cluster, pods, site, code
        self._starting: dict[str, tuple[str, int]] = {}  # by pod: where it should be, and its GPUs, while the broker doesn't know it

    async def make(self, spec: Spec, profile: Profile, owner: Mapping[str, Any], warm: str = "") -> reasons.Pod:
        """Secret, then pod; then the Secret goes with the pod. ``warm``: it is nobody's yet, and waits under this key. Raises
        ``LaunchError``."""
        site, name = self._site, self._name(spec.kernel_id)
        secret = manifests.secret(site, name, spec.kernel_id, spec.user, spec.to_json(), owner)
        await self._code.there()
        await self._create_anew(SECRETS, name, secret)
        try:
            node = self._cluster.node_for(profile, spec.gpus, self._starting.values())
            if node is not None:
                self._starting[name] = node, spec.gpus
            body = manifests.kernel_pod(
                site, profile, name, spec.kernel_id, spec.user, spec.gpus or profile.gpus, self._cluster.drained, node
            )  # fmt: skip
            if warm:
                body["metadata"]["labels"][names.WARM] = warm
            pod = await self._create_anew(PODS, name, body)
        except BaseException as exc:
            self._starting.pop(name, None)
            await asyncio.shield(self.forget_secret(name))
            if isinstance(exc, ApiDenied):
                raise LaunchError(f"The cluster refuses this kernel's pod: {exc}", reason="quota" if exc.quota else "denied") from exc
            raise
        await self.give_to(name, pod)
        return pod

    async def up(
        self, pod: reasons.Pod, spec: Mapping[str, Any], owner: Mapping[str, Any], told: Callable[[str], None]
    ) -> PodSupervisor:  # fmt: skip
        """Once it listens. Raises ``LaunchError`` as soon as it is known that it never will; then the pod is gone."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        try:
            supervisor = PodSupervisor(self._cluster, await self._until_it_runs(name, uid, told), spec, owner)
            await self._until_it_listens(supervisor)
            return supervisor
        except BaseException:
            await asyncio.shield(self.undo(name, uid))
            raise
        finally:
            self._starting.pop(name, None)

    def _name(self, kernel_id: str) -> str:
        """Of its next pod: a pod of it that is lost with its node keeps its name until the node comes back."""
        life = 1
        while (pod := self._pods.get(names.kernel_pod(kernel_id, life))) is not None and reasons.node_lost(pod):
            life += 1
        return names.kernel_pod(kernel_id, life)

    async def give_to(self, name: str, pod: reasons.Pod) -> None:
        """The Secret goes with its pod."""
        reference = manifests.owner_reference({"name": name, "uid": pod["metadata"]["uid"]})
        await self._cluster.api.patch(SECRETS, self._site.namespace, name, {"metadata": {"ownerReferences": [reference]}})

    async def _create_anew(self, kind: Any, name: str, body: dict[str, Any]) -> reasons.Pod:
        """What an earlier kernel of that id has left gives way; one that lives does not."""
        while True:
            try:
                return await self._cluster.api.create(kind, self._site.namespace, body)
            except ApiConflict:
                old = self._pods.get(name)
                if old is not None and not reasons.over(old) and not old["metadata"].get("deletionTimestamp"):
                    raise LaunchError(
                        f"A kernel of that id runs already, in the pod {name}: connect to it, or choose another id."
                    ) from None
                if kind is SECRETS:
                    await self._cluster.api.delete(SECRETS, self._site.namespace, name)
                elif old is not None:
                    await self._cluster.delete_pod(name, old["metadata"]["uid"], 1.0)
                    if not await gone(lambda: self._pods.get(name) is None, GONE_SECONDS):
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
            pod = self._pods.get(name)
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
            if await _listens(host):
                return
            if not supervisor.alive():
                words = await self._log(supervisor.place)
                raise LaunchError(f"{supervisor.obituary()}{f' Its last words:{chr(10)}{words}' if words else ''}")
            await asyncio.sleep(0.05)
            waited += 0.05
        raise LaunchError(
            f"The kernel's pod {supervisor.place} runs and nobody listens on {host}:{LINK_PORT}: does a NetworkPolicy keep the gateway out?"
        )

    async def undo(self, name: str, uid: str) -> None:
        try:
            await self._cluster.delete_pod(name, uid, 1.0)
        except ElasticError as exc:
            log.warning("the pod %s could not be deleted, which is tried again: %s", name, exc)
            self._cluster.delete_pod_later(name, uid, 1.0)

    async def forget_secret(self, name: str) -> None:
        try:
            await self._cluster.api.delete(SECRETS, self._site.namespace, name)
        except ElasticError as exc:
            log.warning("the Secret %s could not be deleted, and is by the kernel's next start or the gateway's: %s", name, exc)

    async def _log(self, name: str) -> str:
        try:
            return (await self._cluster.api.log(self._site.namespace, name, "kernel")).strip()
        except ElasticError:
            return ""

    async def secrets(self) -> dict[str, Any]:
        selector = names.selector(self._site.gateway, names.ROLE_KERNEL)
        return {each["metadata"]["name"]: each for each in (await self._cluster.api.list(SECRETS, self._site.namespace, selector))[0]}

    async def secret(self, name: str) -> Any:
        try:
            return await self._cluster.api.get(SECRETS, self._site.namespace, name)
        except ApiMissing:
            return None


async def listens(pod: reasons.Pod) -> bool:
    """Its supervisor can be reached."""
    host = pod.get("status", {}).get("podIP")
    return reasons.running(pod) and bool(host) and await _listens(host)


async def _listens(host: str) -> bool:
    try:
        async with asyncio.timeout(2.0):
            _, writer = await asyncio.open_connection(host, LINK_PORT)
        writer.close()
        return True
    except (OSError, TimeoutError):
        return False


def parts(secret: Mapping[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the supervisor was told, and what its gateway keeps."""
    try:
        data = (secret or {})["data"]
        return json.loads(b64decode(data[manifests.SPEC_KEY])), json.loads(b64decode(data[manifests.OWNER_KEY]))
    except (KeyError, ValueError) as exc:
        raise SupervisorLost(f"a kernel's Secret is missing or can't be read ({exc!r}): the kernel goes on, out of reach") from None
