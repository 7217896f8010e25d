"""A cluster of this run's own for tests marked ``controllers``, with the controllers that a test asks for installed once."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.available import NoCluster, own_cluster
from tests.cluster.cluster import Cluster, OwnCluster
from tests.cluster.fixtures import unavailable
from tests.cluster.rig import PodGateway
from tests.integration.machine import Machine, until

from . import manifests
from .manifests import Controller

BUILD = "run `python -m tests.cluster controllers` as root, once (twenty minutes)"


@pytest.fixture(scope="session")
def _session_cluster() -> Iterator[Cluster]:
    """Not one that others use: its webhooks are asked about their Jobs, too."""
    try:
        with own_cluster() as found:
            yield found
    except NoCluster as error:
        unavailable(str(error))


def installed(cluster: OwnCluster, controller: Controller) -> None:
    if not controller.ready():
        unavailable(f"{controller.module.name} has not been built: {BUILD}")
    cluster.import_image(controller.archive())
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": controller.objects()})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=items, timeout=180)
    # its certificate is there at once, but a kubelet tells a pod that runs only a minute later
    secrets = functools.partial(cluster.get, "secrets", "-n", controller.namespace)
    until(lambda: any("tls.crt" in (each.get("data") or {}) for each in secrets()["items"]), 240)
    cluster.kubectl("delete", "pods", "--all", "-n", controller.namespace, "--grace-period=1")
    cluster.kubectl("wait", "-n", controller.namespace, "deployments", "--all", "--for=condition=Available", "--timeout=240s", timeout=260)


@pytest.fixture(scope="session")
def jobset(_session_cluster: OwnCluster) -> None:
    installed(_session_cluster, manifests.JOBSET)


@pytest.fixture(scope="session")
def kueue(_session_cluster: OwnCluster, jobset: None) -> None:
    """With JobSet, of whose objects it wants to hear."""
    installed(_session_cluster, manifests.KUEUE)


@pytest.fixture(scope="session")
def trainer(_session_cluster: OwnCluster, jobset: None) -> None:
    installed(_session_cluster, manifests.TRAINER)


@pytest.fixture
def others(cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine) -> Iterator[PodGateway]:
    """A gateway that may make a burst of every kind."""
    gateway = PodGateway(pod_machine, cluster, namespace, kinds=("jobset", "trainjob", "volcano"))
    yield gateway
    gateway.end()


def left(gateway: PodGateway) -> list[str]:
    """What there is of bursts in the namespace, whoever has made it."""
    kinds = ["jobs", "services", "networkpolicies"]
    known = gateway.cluster.kubectl("api-resources", "--namespaced", "--no-headers", "-o", "name").split()
    kinds += [each for each in known if each.partition(".")[0] in ("jobsets", "trainjobs", "trainingruntimes", "workloads")]
    found: list[str] = [f"pod/{each['metadata']['name']}" for each in gateway.pods("rank")]
    for kind in kinds:
        items: list[dict[str, Any]] = gateway.cluster.get(kind, "-n", gateway.namespace)["items"]
        found += [f"{kind}/{each['metadata']['name']}" for each in items]
    secrets = gateway.cluster.get("secrets", "-n", gateway.namespace)["items"]
    return found + [f"secret/{each['metadata']['name']}" for each in secrets if each["metadata"]["name"].startswith("burst-")]
