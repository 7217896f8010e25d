"""Why a pod doesn't run, or runs no more: the cluster's own words, with what they mean and what to do. Pure.

It must never guess: where the cluster gives no reason, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Pod = Mapping[str, Any]

_NEVER_PULLS = {"ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"}
_NEVER_STARTS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "StartError"}


@dataclass(frozen=True)
class Trouble:
    """``final``: waiting longer can't help. ``message``: cause and next step. ``words``: the scheduler's own, if any."""

    message: str
    final: bool
    reason: str
    words: str = ""


def trouble(pod: Pod, who: str = "this kernel") -> Trouble | None:
    """What keeps the pod of ``who`` from running, or has ended it; None while all is well."""
    return _ended(pod, who) or _container(pod) or _scheduling(pod, who)


def running(pod: Pod) -> bool:
    """Its kernel's container runs."""
    return any("running" in status.get("state", {}) for status in _statuses(pod, "containerStatuses"))


def node_lost(pod: Pod) -> bool:
    """The cluster hears nothing of its node: it has marked the pod as not ready, whose containers were."""
    conditions = {each.get("type"): each.get("status") for each in pod.get("status", {}).get("conditions") or ()}
    return conditions.get("Ready") == "False" and any(each.get("ready") for each in _statuses(pod, "containerStatuses"))


def over(pod: Pod) -> bool:
    """Nothing of it runs any more, and nothing will."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _scheduling(pod: Pod, who: str) -> Trouble | None:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = condition.get("message") or condition.get("reason") or "the scheduler gives no reason"
            said = said.partition(" preemption:")[0].removesuffix(" no new claims to deallocate,")
            return Trouble(
                f"No node has room for {who}'s pod just now: {said} It starts when there is room; a smaller profile may fit.",
                final=False,
                reason="unschedulable",
                words=said.rstrip("."),
            )
    return None


def _container(pod: Pod) -> Trouble | None:
    for status in [*_statuses(pod, "initContainerStatuses"), *_statuses(pod, "containerStatuses")]:
        waiting = status.get("state", {}).get("waiting") or {}
        reason, said, image = waiting.get("reason", ""), waiting.get("message", ""), status.get("image", "")
        if reason in _NEVER_PULLS:
            return Trouble(
                f"The image {image} can't be pulled ({reason}): {said or 'no message'}. Check its name and the profile's pull_secrets.",
                final=reason != "ErrImagePull",  # that is the first try; the back-off after it is the second
                reason="image",
            )
        if reason in _NEVER_STARTS:
            return Trouble(f"The container {status.get('name')} can't be started ({reason}): {said or 'no message'}.", True, "container")
    return None


def _ended(pod: Pod, who: str) -> Trouble | None:
    status = pod.get("status", {})
    if not over(pod) and not pod.get("metadata", {}).get("deletionTimestamp"):
        for init in _statuses(pod, "initContainerStatuses"):
            ended = init.get("state", {}).get("terminated")
            if ended and ended.get("exitCode"):
                said = f"The init container {init.get('name')} failed in this kernel's pod ({_exit(ended)})."
                return Trouble(f"{said} Ask who adds it to pods of this namespace.", True, "init")
        return None
    deleted = bool(pod["metadata"].get("deletionTimestamp"))  # then it was killed after its grace
    if status.get("reason") == "Evicted":
        return Trouble(f"The cluster evicted {who}'s pod: {status.get('message', 'no message')}.", True, "evicted")
    if status.get("reason") in ("NodeLost", "NodeShutdown", "Terminated"):
        return Trouble(f"{_the(who)}'s node went away: {status.get('message') or status['reason']}.", True, "node_lost")
    for container in _statuses(pod, "containerStatuses"):
        ended = container.get("state", {}).get("terminated")
        if ended and ended.get("reason") == "OOMKilled":
            limit = _limit(pod)
            return Trouble(
                f"{_the(who)} needed more memory than its pod may have{f' ({limit})' if limit else ''} and was ended (OOMKilled)."
                " Use less, or a profile with more memory.",
                True,
                "oom",
            )
        if ended and status.get("phase") == "Failed" and not deleted:
            return Trouble(f"{_the(who)}'s pod ended ({_exit(ended)}).", True, "exited")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return Trouble(f"The cluster took {who}'s pod away: {condition.get('message') or condition.get('reason')}.", True, "disrupted")
    if status.get("phase") == "Failed" and not deleted:
        return Trouble(
            f"{_the(who)}'s pod failed: {status.get('message') or status.get('reason') or 'the cluster gives no reason'}.", True, "failed"
        )
    if pod.get("metadata", {}).get("deletionTimestamp"):
        return Trouble(f"{_the(who)}'s pod was deleted in the cluster.", True, "deleted")
    return Trouble(f"{_the(who)}'s pod has ended.", True, "ended")


def _the(who: str) -> str:
    """As a sentence begins."""
    return f"{who[:1].upper()}{who[1:]}".replace("This", "The", 1)


def _statuses(pod: Pod, key: str) -> list[Mapping[str, Any]]:
    return list(pod.get("status", {}).get(key) or ())


def _limit(pod: Pod) -> str:
    containers = pod.get("spec", {}).get("containers") or [{}]
    limit = containers[0].get("resources", {}).get("limits", {}).get("memory", "")
    return f"{int(limit) / (1 << 30):.1f} GiB" if str(limit).isdigit() else str(limit)


def _exit(ended: Mapping[str, Any]) -> str:
    signal = f", signal {ended['signal']}" if ended.get("signal") else ""
    return f"{ended.get('reason', 'no reason')}, exit code {ended.get('exitCode')}{signal}"
