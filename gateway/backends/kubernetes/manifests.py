"""The objects that we make in a cluster, as plain dictionaries. Pure: the same arguments always give the same object.

No secret may stand in a pod: what a kernel is told comes by its Secret. Every pod must pass the ``restricted`` pod security standard,
and none gets a token of the cluster.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from . import names
from .profiles import Profile, quantity

Object = dict[str, Any]

LINK_PORT = 5554
PORTS = {"shell": 5555, "iopub": 5556, "stdin": 5557, "control": 5558, "hb": 5559}

CODE = "/opt/elastic"  # where our code lies in a kernel's pod
CODE_KEY = "code.zip"  # of its Secret
STATE = "/run/elastic/state"
SPEC = "/run/elastic/spec"
SPEC_KEY, OWNER_KEY = "spec.json", "owner.json"  # of the Secret: what the pod reads, and what only its gateway reads

SLOT_PATIENCE = 25  # seconds that a slot waits for its GPU to be empty before it ends all the same
UNREACHABLE_SECONDS = 60  # after which the cluster gives up pods of a node that is lost


@dataclass(frozen=True)
class Site:
    """What all pods of one gateway share."""

    gateway: str
    namespace: str
    code_image: str  # the gateway's own, which slots run
    pull_policy: str = "IfNotPresent"
    code: str = ""  # the Secret whose code kernels run


def secret(site: Site, name: str, kernel_id: str, user: str, spec: Mapping[str, Any], owner: Mapping[str, Any]) -> Object:
    """What the supervisor is told (``spec``), and what a gateway needs beside it to adopt the kernel (``owner``)."""
    data = {key: b64encode(json.dumps(value).encode()).decode() for key, value in ((SPEC_KEY, spec), (OWNER_KEY, owner))}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(site, name, names.ROLE_KERNEL, kernel_id, user),
        "type": "Opaque",
        "data": data,
    }


def code_secret(site: Site, zipped: str) -> Object:
    """Our code, for all kernels' pods of a gateway. ``zipped``: in base64."""
    labels = {names.MANAGED_BY: names.MANAGER, names.GATEWAY: site.gateway, names.ROLE: names.ROLE_CODE}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": site.code, "namespace": site.namespace, "labels": labels},
        "type": "Opaque",
        "immutable": True,
        "data": {CODE_KEY: zipped},
    }


def kernel_pod(
    site: Site, profile: Profile, name: str, kernel_id: str, user: str, gpus: int, drained: Collection[str] = (), node: str | None = None
) -> Object:  # fmt: skip
    """A kernel's pod. Its supervisor is the container's first process, and our code comes by a Secret. ``drained``: nodes that it must not
    be on; ``node``: the one where it should be, if it can."""
    metadata = _metadata(site, name, names.ROLE_KERNEL, kernel_id, user)
    metadata["labels"] = {**profile.labels, **metadata["labels"], f"{names.PREFIX}/profile": profile.name}
    metadata["annotations"] = {**profile.annotations, "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    volumes, mounts = _volumes(profile, user)
    spec: Object = {
        **_pod_basics(profile),
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {
                "name": "kernel",
                "image": profile.image,
                "imagePullPolicy": profile.pull_policy,
                "command": ["python", "-m", "gateway.pod.supervisor", STATE, "--spec", f"{SPEC}/{SPEC_KEY}"],
                "workingDir": "/",
                "env": _env(profile),
                "ports": [{"name": "link", "containerPort": LINK_PORT}, *({"name": n, "containerPort": p} for n, p in PORTS.items())],
                "resources": _resources(profile, gpus),
                "securityContext": _locked_down(read_only=False),
                "volumeMounts": [
                    {"name": "elastic-code", "mountPath": CODE, "readOnly": True},
                    {"name": "elastic-state", "mountPath": STATE},
                    {"name": "elastic-spec", "mountPath": SPEC, "readOnly": True},
                    *mounts,
                ],
            }
        ],
        "volumes": [
            {"name": "elastic-code", "secret": {"secretName": site.code, "defaultMode": 0o444}},
            {"name": "elastic-state", "emptyDir": {}},
            {
                "name": "elastic-spec",
                "secret": {"secretName": name, "defaultMode": 0o440, "items": [{"key": SPEC_KEY, "path": SPEC_KEY}]},
            },
            *volumes,
        ],
    }
    if profile.node_selector:
        spec["nodeSelector"] = dict(profile.node_selector)
    if drained:
        spec["affinity"] = _node_affinity("NotIn", sorted(drained))
    if node is not None:
        here = {"weight": 100, "preference": _nodes_named("In", [node])}
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [here]
    if profile.gpu_resource and profile.gpu_sees == "claim":
        spec["resourceClaims"] = [{"name": "sees", "resourceClaimTemplateName": profile.gpu_claim}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def slot_pod(
    site: Site, profile: Profile, name: str, kernel_id: str, user: str, node: str, count: int, owner: Mapping[str, str]
) -> Object:  # fmt: skip
    """What makes the scheduler believe a lease: a small pod on the kernel's node that requests its GPUs.

    ``owner``: ``name`` and ``uid`` of the kernel's pod, with which it goes.
    """
    metadata = _metadata(site, name, names.ROLE_SLOT, kernel_id, user)
    metadata["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
    metadata["ownerReferences"] = [owner_reference(owner)]
    gpus = {profile.gpu_resource: str(count)}
    spec: Object = {
        **_pod_basics(profile),
        "terminationGracePeriodSeconds": SLOT_PATIENCE + 5,
        # As the first process of its own it would be deaf to its end until Python is up, and the GPU nobody's for the whole grace
        "shareProcessNamespace": True,
        "affinity": _node_affinity("In", [node]),
        "containers": [
            {
                "name": "slot",
                "image": site.code_image,
                "imagePullPolicy": site.pull_policy,
                "command": ["python", "-m", "gateway.pod.slot", "--patience", str(SLOT_PATIENCE)],
                "resources": {"requests": {"cpu": "1m", "memory": "24Mi", **gpus}, "limits": {"memory": "64Mi", **gpus}},
                "securityContext": _locked_down(),
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _node_affinity(operator: str, nodes: list[str]) -> Object:
    terms = [_nodes_named(operator, nodes)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _nodes_named(operator: str, nodes: list[str]) -> Object:
    """The API server takes one name a requirement, and all of them count."""
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]} for node in nodes]}


def owner_reference(pod: Mapping[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"], "controller": True, "blockOwnerDeletion": False}


def _metadata(site: Site, name: str, role: str, kernel_id: str, user: str) -> Object:
    return {"name": name, "namespace": site.namespace, "labels": names.labels(site.gateway, role, kernel_id, user)}


def _pod_basics(profile: Profile) -> Object:
    """What a kernel's pod and its slots have in common."""
    basics: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": profile.run_as_user,
            "runAsGroup": profile.fs_group,
            "fsGroup": profile.fs_group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [*map(dict, profile.tolerations), *_gpu_tolerations(profile.gpu_resource), *_lost_node_tolerations()],
    }
    if profile.priority_class:
        basics["priorityClassName"] = profile.priority_class
    if profile.runtime_class:
        basics["runtimeClassName"] = profile.runtime_class
    if profile.pull_secrets:
        basics["imagePullSecrets"] = [{"name": each} for each in profile.pull_secrets]
    return basics


def _locked_down(read_only: bool = True) -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        **({"readOnlyRootFilesystem": True} if read_only else {}),
    }


def _env(profile: Profile) -> list[Object]:
    """Of the supervisor; the kernel's own comes by the Secret."""
    env = {"PYTHONPATH": f"{CODE}/{CODE_KEY}", "PYTHONDONTWRITEBYTECODE": "1"}
    if profile.gpu_resource and profile.gpu_sees == "runtime":
        env["NVIDIA_VISIBLE_DEVICES"] = "all"
    elif not profile.gpu_resource:
        env["NVIDIA_VISIBLE_DEVICES"] = "void"  # whatever the image says
    return [{"name": name, "value": value} for name, value in env.items()]


def _resources(profile: Profile, gpus: int) -> Object:
    memory = str(profile.memory_bytes)
    requests: Object = {"cpu": profile.cpu, "memory": str(quantity(profile.memory))}
    limits: Object = {"memory": memory, **({"cpu": profile.cpu_limit} if profile.cpu_limit else {})}
    if profile.for_life and gpus:
        requests[profile.gpu_resource] = limits[profile.gpu_resource] = str(gpus)
    resources = {"requests": requests, "limits": limits}
    if profile.gpu_resource and profile.gpu_sees == "claim":
        resources["claims"] = [{"name": "sees"}]
    return resources


def _volumes(profile: Profile, user: str) -> tuple[list[Object], list[Object]]:
    """The profile's volumes and mounts; ``{user}`` in a subPath or a claim's name becomes the user's own."""
    safe = names.slug(user or "nobody")
    volumes, mounts = [], []
    for each in profile.volumes:
        [kind] = set(each) - {"name", "mount_path", "sub_path", "read_only"}
        volumes.append({"name": each["name"], kind: _filled(each[kind], safe)})
        mount = {"name": each["name"], "mountPath": each["mount_path"], "readOnly": bool(each.get("read_only"))}
        if each.get("sub_path"):
            mount["subPath"] = _filled(each["sub_path"], safe)
        mounts.append(mount)
    return volumes, mounts


def _filled(value: Any, user: str) -> Any:
    if isinstance(value, str):
        return value.replace("{user}", user)
    if isinstance(value, Mapping):
        return {key: _filled(each, user) for key, each in value.items()}
    return [_filled(each, user) for each in value] if isinstance(value, list | tuple) else value


def _gpu_tolerations(resource: str) -> list[Object]:
    return [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}] if resource else []


def _lost_node_tolerations() -> list[Object]:
    return [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": UNREACHABLE_SECONDS}
        for what in ("not-ready", "unreachable")
    ]
