"""The objects of a burst: an Indexed Job, whose pods are like its kernel's, a Secret, a headless Service and a NetworkPolicy. Pure.

All but the Job belong to the Job, and the Job to the kernel's pod unless the burst is detached, so that nothing is left of any of them. No
token of the burst may stand in a pod or Job, and nothing that a user has typed may become more than a label or a number.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ....protocol import burst
from .. import manifests, names
from ..manifests import SPEC, STATE, Object, Site
from ..profiles import Profile
from . import spot

GRACE = 8  # seconds for a rank to end after it was told to
KEPT_SECONDS = 3600  # for which the cluster keeps a Job that has ended, should nobody come for it
CONTAINER = "rank"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"  # label of a Job: Kueue lets it go once the queue has room


@dataclass(frozen=True)
class Wanted:
    """What a burst is to have in the cluster. ``gpus``: of each worker; ``procs``: ranks of each. ``owner``: name and uid of the kernel's
    pod; None: detached. ``timeout``: seconds that it may run; None: no limit."""

    id: str
    kernel_id: str
    user: str
    workers: int
    gpus: int = 0
    owner: Mapping[str, str] | None = None
    timeout: float | None = None
    queue: str = ""  # of Kueue: that lets the Job go
    shape: str = "job"  # the kind of object that it is made as (``adapters``)
    on_demand: bool = False  # no spot nodes
    procs: int = 1


def job(site: Site, profile: Profile, wanted: Wanted, drained: Collection[str] = ()) -> Object:
    """Suspended at first: it is let go once all that its pods need is there, with a ``queue`` by Kueue.

    A cell that fails ends it at once (exit code ``USER_ERROR``); a pod that the cluster takes away before the cell has begun is made
    anew; what fails otherwise fails the Job, since a cell is never begun a second time unasked.
    """
    spec: Object = {
        "suspend": True,
        "completionMode": "Indexed",
        "completions": wanted.workers,
        "parallelism": wanted.workers,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [burst.USER_ERROR]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": _template(site, profile, wanted, drained),
    }
    if wanted.timeout is not None:  # its agents look at it themselves; this is for those that can't
        spec["activeDeadlineSeconds"] = int(wanted.timeout) + 600
    made: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(site, wanted), "spec": spec}
    if wanted.queue:
        made["metadata"]["labels"][KUEUE_QUEUE] = wanted.queue
    if wanted.owner is not None:
        made["metadata"]["ownerReferences"] = [{**manifests.owner_reference(wanted.owner), "controller": False}]
    return made


def belongings(site: Site, wanted: Wanted, uid: str, access: Mapping[str, str]) -> list[Object]:
    """What its pods need, each belonging to the Job with that ``uid``. ``access``: the file by which ranks reach the gateway."""
    return [secret(site, wanted, uid, access), service(site, wanted, uid), network_policy(site, wanted, uid)]


def secret(site: Site, wanted: Wanted, uid: str, access: Mapping[str, str]) -> Object:
    data = {burst.SPEC: b64encode(json.dumps(dict(access)).encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(site, wanted, uid), "type": "Opaque", "data": data}


def service(site: Site, wanted: Wanted, uid: str) -> Object:
    """Names for ranks, where the cluster has a DNS: ``<job>-<rank>.<job>``."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {names.BURST: wanted.id}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(site, wanted, uid), "spec": spec}


def network_policy(site: Site, wanted: Wanted, uid: str) -> Object:
    """Ranks hear one another and nobody else: what frameworks speak among themselves is neither encrypted nor asks who is there."""
    us = {"matchLabels": {names.BURST: wanted.id}}
    spec = {"podSelector": us, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": us}]}]}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _metadata(site, wanted, uid), "spec": spec}


def _metadata(site: Site, wanted: Wanted, job_uid: str = "") -> Object:
    metadata: Object = {"name": names.burst_job(wanted.id), "namespace": site.namespace, "labels": _labels(site, wanted)}
    if job_uid:
        metadata["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": job_uid, "controller": True,
             "blockOwnerDeletion": False}
        ]  # fmt: skip
    return metadata


def _labels(site: Site, wanted: Wanted) -> dict[str, str]:
    return {**names.labels(site.gateway, names.ROLE_RANK, wanted.kernel_id, wanted.user), names.BURST: wanted.id}


def _template(site: Site, profile: Profile, wanted: Wanted, drained: Collection[str]) -> Object:
    """A pod like the kernel's own, code and volumes alike, but that a rank requests its GPUs itself."""
    plain = replace(profile, parkable_memory="0", gpu_sees="life", warm=0)
    pod = manifests.kernel_pod(site, plain, names.burst_job(wanted.id), wanted.kernel_id, wanted.user, wanted.gpus, drained)
    spec, labels = pod["spec"], {**pod["metadata"]["labels"], **_labels(site, wanted)}
    [container] = spec["containers"]
    del container["ports"]
    container["name"] = CONTAINER
    container["command"] = ["python", "-m", "gateway.pod.burst.in_pod", STATE, "--spec", f"{SPEC}/{burst.SPEC}"]
    if not wanted.gpus:
        container["env"] = [each for each in container["env"] if each["name"] != "NVIDIA_VISIBLE_DEVICES"]
        container["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    told = next(volume for volume in spec["volumes"] if volume["name"] == "elastic-spec")
    told["secret"]["items"] = [{"key": burst.SPEC, "path": burst.SPEC}]
    spec["volumes"].append({"name": "elastic-shm", "emptyDir": {"medium": "Memory"}})  # the container's memory limit bounds it
    container["volumeMounts"].append({"name": "elastic-shm", "mountPath": "/dev/shm"})
    if wanted.on_demand:
        spot.never(spec, profile)
    spec["terminationGracePeriodSeconds"] = GRACE
    spec["subdomain"] = names.burst_job(wanted.id)
    annotations = pod["metadata"]["annotations"] | ({names.PROCS: str(wanted.procs)} if wanted.procs > 1 else {})
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
