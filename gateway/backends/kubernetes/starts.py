"""From a spec to a supervisor that listens: Secret, pod, and every reason why it may not come up.

It must never leave anything of a start that has failed, nor delete what lives.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ElasticError, LaunchError, SupervisorLost
from ...protocol.model import Spec
from . import manifests, names, reasons
from .api import PODS, SECRETS
from .code import Code
from .errors import ApiConflict, ApiDenied, ApiMissing, ApiUnavailable
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
        self._ungiven: dict[str, str] = {}  # by name: uids of Secrets that don't go with their pods yet
        self._given_up: set[str] = set()  # tries that have failed; whether they have made a pod, nobody knows yet
        # by pod: for GPUs of which kind, where it should be, and how many, while the broker doesn't know it
        self._starting: dict[str, tuple[str, str, int]] = {}

    async def make(self, spec: Spec, profile: Profile, owner: Mapping[str, Any], warm: str = "") -> reasons.Pod:
        """Secret, then pod; then the Secret goes with the pod. ``warm``: it is nobody's yet, and waits under this key. Raises
        ``LaunchError``."""
        site, name = self._site, self._name(spec.kernel_id)
        secret = manifests.secret(site, name, spec.kernel_id, spec.user, spec.to_json(), owner)
        attempt = {names.ATTEMPT: token_hex(8)}
        secret["metadata"]["annotations"] = attempt
        await self._code.there()
        try:
            made = await self._create_anew(SECRETS, name, secret)
            alike = [(node, gpus) for resource, node, gpus in self._starting.values() if resource == profile.gpu_resource]
            node = self._cluster.node_for(profile, spec.gpus, alike)
            if node is not None:
                self._starting[name] = profile.gpu_resource, node, spec.gpus
            body = manifests.kernel_pod(
                site, profile, name, spec.kernel_id, spec.user, spec.gpus or profile.gpus, self._cluster.drained, node
            )  # fmt: skip
            if warm:
                body["metadata"]["labels"][names.WARM] = warm
            body["metadata"]["annotations"] |= attempt
            pod = await self._create_anew(PODS, name, body)
        except BaseException as exc:
            self._starting.pop(name, None)
            await asyncio.shield(self._unmake_later(spec.kernel_id, attempt[names.ATTEMPT], exc))
            if isinstance(exc, ApiDenied):
                raise LaunchError(f"The cluster refuses this kernel's pod: {exc}", reason="quota" if exc.quota else "denied") from exc
            raise
        self._ungiven[name] = made["metadata"]["uid"]
        try:
            await self._give(name, pod)
        except ApiUnavailable as exc:
            log.warning("the Secret %s can't be given to its pod now, which is tried again: %s", name, exc)
            self._cluster.until_done(f"giving the Secret {name} to its pod", lambda: self._give(name, pod))
        except BaseException:
            self._starting.pop(name, None)
            await asyncio.shield(self.undo(name, pod["metadata"]["uid"]))
            raise
        return pod

    async def _give(self, name: str, pod: reasons.Pod) -> None:
        with suppress(ApiMissing):  # then it has gone with the kernel
            await self.give_to(name, pod)
        self._ungiven.pop(name, None)

    async def _unmake_later(self, kernel_id: str, attempt: str, why: BaseException) -> None:
        """Now, and again where it can't be known what the try has made, or is about to."""
        self._given_up.add(attempt)
        unsure = isinstance(why, ApiUnavailable | asyncio.CancelledError)
        try:
            await self._unmake(kernel_id, attempt, last=not unsure)
        except ElasticError as exc:
            log.warning("what the start of kernel %s has made could not be deleted: %s", kernel_id, exc)
            unsure = True
        if unsure:
            what = f"the end of what the start of kernel {kernel_id} has made"
            self._cluster.until_done(what, lambda: self._unmake(kernel_id, attempt, last=True))

    async def _unmake(self, kernel_id: str, attempt: str, last: bool) -> None:
        """Whatever a try that has failed has made."""
        api, namespace = self._cluster.api, self._site.namespace
        selector = f"{names.selector(self._site.gateway, names.ROLE_KERNEL)},{names.KERNEL}={names.slug(kernel_id, 63)}"
        for kind, grace in ((PODS, 1), (SECRETS, None)):
            for each in (await api.list(kind, namespace, selector))[0]:
                if _attempt(each) == attempt:
                    await api.delete(kind, namespace, each["metadata"]["name"], uid=each["metadata"]["uid"], grace=grace)
        if last:
            self._given_up.discard(attempt)

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
                failed = old is not None and _attempt(old) in self._given_up
                if old is not None and not failed and not reasons.over(old) and not old["metadata"].get("deletionTimestamp"):
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
        """A pod that is not to be, and its Secret."""
        try:
            await self._cluster.delete_pod(name, uid, 1.0)
        except ElasticError as exc:
            log.warning("the pod %s could not be deleted, which is tried again: %s", name, exc)
            self._cluster.delete_pod_later(name, uid, 1.0)

    async def forget_left(self, name: str) -> None:
        """What doesn't go with a pod that is deleted."""
        if (uid := self._ungiven.pop(name, None)) is not None:
            await self.forget_secret(name, uid)

    async def forget_secret(self, name: str, uid: str | None = None) -> None:
        try:
            await self._cluster.api.delete(SECRETS, self._site.namespace, name, uid=uid)
        except ApiConflict:
            pass  # another kernel's by now
        except ElasticError as exc:
            log.warning("the Secret %s could not be deleted, which is tried again: %s", name, exc)
            self._cluster.delete_secret_later(name, uid)

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


def _attempt(found: Mapping[str, Any]) -> str:
    return str((found["metadata"].get("annotations") or {}).get(names.ATTEMPT, ""))


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
