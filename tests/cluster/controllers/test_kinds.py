"""What we make of a burst, submitted to a real API server that has the CRDs: it takes all of it, and drops nothing."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from gateway.backends.kubernetes.jobs import adapters
from gateway.backends.kubernetes.jobs import manifests as job_manifests
from gateway.backends.kubernetes.jobs.adapters.parts import Part
from gateway.backends.kubernetes.jobs.manifests import Wanted
from gateway.backends.kubernetes.manifests import Site
from gateway.backends.kubernetes.profiles import Profile
from tests.cluster import crds
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import unavailable
from tests.integration.machine import until

pytestmark = pytest.mark.controllers
KINDS = [name for name in adapters.SHAPES if name != adapters.JOB]


def established(cluster: Cluster, crd: str) -> bool:
    conditions = cluster.get("crd", crd).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def missing(sent: Any, kept: Any, path: str = "") -> list[str]:
    """What was sent and isn't kept."""
    if isinstance(sent, dict):
        found = [f"{path}.{key}" for key in sent if key not in (kept or {})]
        return found + [each for key in sent if key in (kept or {}) for each in missing(sent[key], kept[key], f"{path}.{key}")]
    if isinstance(sent, list):
        return [each for n, value in enumerate(sent) for each in missing(value, kept[n] if n < len(kept) else None, f"{path}[{n}]")]
    return []


@pytest.mark.parametrize("name", KINDS)
def test_a_real_api_server_takes_the_object_and_drops_nothing(cluster: Cluster, namespace: str, name: str) -> None:
    site, profile = Site("lab", namespace, "gateway:1", code="code"), Profile(image="i", gpu_resource="example.com/gpu", gpus=2)
    job = job_manifests.job(site, profile, Wanted("0123456789abcdef", "k", "ada", 3, gpus=1, shape=name))
    parts = [Part("rank", job)]
    shape = adapters.shape(name)
    objects = [*shape.before(parts), shape.build(parts)]
    for each in objects:
        kind = name if each["kind"] != "TrainingRuntime" else "trainingruntime"
        try:
            crd = crds.crd(kind)
        except FileNotFoundError:
            unavailable(f"the cache has no CRD of {kind}: {crds.BUILD}")
        if crd["metadata"]["name"] not in cluster.kubectl("get", "crds", "-o", "name"):  # else its controller has brought it
            cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(crd))
            until(functools.partial(established, cluster, crd["metadata"]["name"]))
    resources = [f"{shape.before_plural}.{shape.group_version.partition('/')[0]}" if each is not objects[-1] else
                 f"{shape.plural}.{shape.group_version.partition('/')[0]}" for each in objects]  # fmt: skip
    for each, resource in zip(objects, resources, strict=True):
        cluster.kubectl("create", "--validate=strict", "-n", namespace, "-f", "-", stdin=json.dumps(each))
        kept = cluster.get(resource, each["metadata"]["name"], "-n", namespace)
        assert missing(each["spec"], kept["spec"]) == []
    for each, resource in reversed(list(zip(objects, resources, strict=True))):
        cluster.kubectl("delete", resource, each["metadata"]["name"], "-n", namespace, "--wait=false")
