"""The supervisor of one kernel as the cluster shows it: a pod, and the Secret that says how to reach it.

It must never ask the cluster where an answer is expected at once: what it knows, the watch has told it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...protocol.errors import SupervisorLost
from ...protocol.model import IDENTITY
from ..base import LinkKeys, Supervisor
from . import manifests, reasons
from .errors import ApiUnavailable
from .manifests import LINK_PORT
from .profiles import remembered
from .reasons import Pod

if TYPE_CHECKING:
    from .cluster import KubernetesCluster

LOST_SECONDS = 10.0  # after its grace, a pod that was deleted and has not ended counts as lost with its node
END_SECONDS = 20.0  # beyond its grace, for the cluster to end a pod


class PodSupervisor(Supervisor):
    """Made from a running pod and its Secret's two parts. Raises ``SupervisorLost`` where something of it is missing."""

    def __init__(self, cluster: KubernetesCluster, pod: Pod, spec: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
        try:
            ip = pod["status"]["podIP"]
            self.node = str(pod["spec"]["nodeName"])
            self.kernel_id, self.key = str(spec["kernel_id"]), str(spec["key"])
            self.user, self.name, self.owner = str(spec["user"]), str(spec["name"]), str(spec["owner"])
            self.display, self.metadata = str(spec["display"]), dict(spec["metadata"])
            self.connection = {
                "transport": "tcp", "ip": ip, **{f"{name}_port": port for name, port in spec["ports"].items()},
                "signature_scheme": "hmac-sha256", "curve_publickey": spec["curve_publickey"],
                "curve_secretkey": spec["curve_secretkey"],
            }  # fmt: skip
            self.link_curve = LinkKeys(
                server=spec["link_curve"]["publickey"], public=spec["link_curve"]["client"], secret=owner["secretkey"]
            )
            self.profile = str(owner["profile"])
            self.made_from = remembered(owner["made_from"]) if "made_from" in owner else cluster.profiles.get(self.profile)
            self.resource = self.made_from.gpu_resource if self.made_from is not None else ""
            self.whose = {name: spec[name] for name in IDENTITY}
        except (KeyError, TypeError, AttributeError) as exc:
            raise SupervisorLost(f"the pod {pod['metadata']['name']} or its Secret lacks {exc}: it can't be reached") from None
        self.link_address = f"tcp://{f'[{ip}]' if ':' in ip else ip}:{LINK_PORT}"
        self.place, self.uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        self.silence = (
            f"its pod {self.place} doesn't answer, and to the cluster it is still running: is node {self.node} cut off, or short of memory?"
        )
        self._cluster, self._pod = cluster, pod
        self._deleted_at: float | None = None

    @property
    def pod(self) -> Pod | None:
        """As the watch has it; None where it has gone."""
        pod = self._cluster.pod(self.place)
        if pod is None or pod["metadata"]["uid"] != self.uid:
            return None
        self._pod = pod
        return pod

    def alive(self) -> bool:
        pod = self.pod
        return pod is not None and not reasons.over(pod) and not self._given_up(pod)

    def _given_up(self, pod: Pod) -> bool:
        """It was to have ended, and its node is lost or says nothing of it: if it comes back, it comes back to end."""
        metadata, now = pod["metadata"], time.monotonic()
        if not metadata.get("deletionTimestamp"):
            return False
        if reasons.node_lost(pod):
            return True
        if self._deleted_at is None:
            self._deleted_at = now
        return now - self._deleted_at > float(metadata.get("deletionGracePeriodSeconds") or 0) + LOST_SECONDS

    def trouble(self) -> str:
        pod = self.pod
        if pod is None or not reasons.node_lost(pod):
            return ""
        return (
            f"The kernel's node {self.node} does not answer{self._cluster.said_of_node(self.node)}: it may come back, and the kernel with "
            f"it. If it has not within {manifests.UNREACHABLE_SECONDS} s, the cluster gives this kernel's pod up."
        )

    def obituary(self) -> str:
        pod = self.pod
        if pod is not None and reasons.node_lost(pod):
            return (
                f"The kernel's node {self.node} does not answer{self._cluster.said_of_node(self.node)}, and the cluster has given its pod"
                f" up{_because(pod)}. What was in the kernel's memory is gone: restart it, and it gets a pod on another node."
            )
        trouble = reasons.trouble(pod or self._pod)
        if trouble is not None and trouble.final:
            return f"{trouble.message} The kernel is gone, with what was in its memory."
        return f"The kernel's pod was deleted in the cluster. {super().obituary()}" if pod is None else super().obituary()

    def last_words(self) -> str:
        return ""

    async def end(self, grace: float) -> None:
        """Raises ``ApiUnavailable`` where the cluster can't be asked: then the pod is ended once it can."""
        try:
            await self._cluster.delete_pod(self.place, self.uid, grace)
        except ApiUnavailable as exc:
            self._cluster.delete_pod_later(self.place, self.uid, grace)
            raise ApiUnavailable(f"{exc} The kernel's pod {self.place} is ended as soon as it answers.") from None
        await gone(lambda: not self.alive(), grace + END_SECONDS)


def _because(pod: Pod) -> str:
    """The cluster's own reason to delete it."""
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("message"):
            return f" ({condition['message']})"
    return ""


async def gone(over: Callable[[], bool], seconds: float) -> bool:
    """Whether ``over`` came true within so many seconds."""
    for _ in range(int(seconds / 0.05)):
        if over():
            return True
        await asyncio.sleep(0.05)
    return False
