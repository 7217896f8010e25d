"""A gateway on this machine whose kernels are pods of the tests' cluster, and what its tests ask of the cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.images import KERNEL, build_image
from tests.cluster.places import digest
from tests.integration.machine import REPOSITORY, Machine
from tests.integration.serving import Gateway

GATEWAY_IMAGE = f"localhost/elastic-gateway:{digest(str(REPOSITORY).encode())}"  # each checkout has its own, as they share the cache
HOST = "kubernetes.io/hostname"

PROFILES: dict[str, dict[str, Any]] = {
    "default": {"cpu": "10m", "memory": "256Mi"},
    "gpu": {"cpu": "10m", "memory": "256Mi", "gpus": 2},
    "life": {"cpu": "10m", "memory": "256Mi", "gpu_sees": "life"},
    "anywhere": {"cpu": "10m", "memory": "256Mi"},
    "huge": {"cpu": "900", "memory": "256Mi"},
    "no-image": {"image": "localhost/there-is-no-such-image:1", "cpu": "10m", "memory": "256Mi"},
    "small": {"cpu": "10m", "memory": "96Mi"},
    "warm": {"cpu": "10m", "memory": "256Mi"},
}


class PodGateway(Gateway):
    """``cluster`` and ``namespace``: where its kernels are. ``more``: further fields of profiles. ``kinds``: what bursts may be made as."""

    def __init__(
        self, machine: Machine, cluster: Cluster, namespace: str, *settings: str, simulated: int | None = 1, warm: int = 0,
        more: Mapping[str, Mapping[str, Any]] | None = None, kinds: Sequence[str] = (), **leases: Any,
    ) -> None:  # fmt: skip
        self.cluster, self.namespace = cluster, namespace
        self.resource = gpu_resource(namespace)
        profiles = {name: {"image": KERNEL, "pull_policy": "Never", **fields} for name, fields in PROFILES.items()}
        here = on_gpu_node(cluster)
        for name in ("gpu", "life"):
            profiles[name] |= {"gpu_resource": self.resource, "node_selector": here}
        profiles["warm"] |= {"warm": warm, "gpu_resource": self.resource, "node_selector": here}
        profiles["anywhere"] |= {"gpu_resource": self.resource}
        for name, fields in (more or {}).items():
            profiles[name] |= fields
        machine.configure(
            ElasticGateway={"backend": "kubernetes", "simulated_gpus": simulated},
            SimulatedGpu={"park_seconds": 0.05},
            Leases={"min_hold": 0.0, **leases},
            KubernetesBackend={
                "namespace": namespace, "kubeconfig": str(cluster.kubeconfig), "code_image": GATEWAY_IMAGE, "pull_policy": "Never",
                "profiles": profiles, "job_kinds": list(kinds),
            },
        )  # fmt: skip
        for name in profiles:
            config = {"profile": name, **({} if name in ("gpu", "life", "warm", "anywhere") else {"gpus": 0})}
            machine.variant(name, metadata={"kernel_provisioner": {"provisioner_name": "elastic-provisioner", "config": config}})
        super().__init__(machine, *settings)

    def pods(self, role: str) -> list[dict[str, Any]]:
        return self.cluster.get("pods", "-n", self.namespace, "-l", names.selector(role=role))["items"]

    def secrets(self) -> list[str]:
        selector = names.selector(role=names.ROLE_KERNEL)
        return [each["metadata"]["name"] for each in self.cluster.get("secrets", "-n", self.namespace, "-l", selector)["items"]]

    def end(self) -> None:
        """With all kernels; nothing is left of them."""
        if self.process.poll() is None:
            self.call("POST", "/api/shutdown", json={"kernels": True})
            self.process.wait(60)


@pytest.fixture(scope="session")
def gateway_image(_session_cluster: Cluster) -> str:
    """Our own image, built from the repository and brought onto the nodes."""
    archive = build_image(REPOSITORY / "images/gateway/Dockerfile", GATEWAY_IMAGE, context=REPOSITORY)
    with _session_cluster.turn(alone=False):
        _session_cluster.import_image(archive)
    return GATEWAY_IMAGE


@pytest.fixture
def pod_machine() -> Iterator[Machine]:
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    yield machine
    machine.clean()


@pytest.fixture
def pods(cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine) -> Iterator[PodGateway]:
    """A gateway with a namespace of its own."""
    gateway = PodGateway(pod_machine, cluster, namespace)
    yield gateway
    gateway.end()


@pytest.fixture
def one_gpu(cluster: Cluster, namespace: str) -> Iterator[DevicePlugin]:
    """One GPU of the test's own kind on one node, which its kubelet gives out; the plugin can offer more."""
    with cluster.devices(gpu_resource(namespace), ["GPU-0"]) as devices:
        yield devices


def on_gpu_node(cluster: Cluster) -> dict[str, str]:
    """Selects the node where tests have GPUs."""
    return {HOST: cluster.get("node", cluster.gpu_node)["metadata"]["labels"][HOST]}


def gpu_resource(namespace: str) -> str:
    """Each test's GPUs are a resource of their own, as the cluster may be shared."""
    return f"example.com/{namespace}"


def foreign_pod(namespace: str, name: str = "foreign") -> dict[str, Any]:
    """Somebody else's pod that needs a GPU."""
    gpu = {"limits": {gpu_resource(namespace): "1"}}
    container = {"name": "main", "image": KERNEL, "imagePullPolicy": "Never", "command": ["sleep", "600"], "resources": gpu}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }  # fmt: skip
