"""The chart installed on the tests' cluster: gateway and kernels in a namespace each, both of them ``restricted``."""

from __future__ import annotations

import json
import secrets
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster
from tests.cluster.images import KERNEL
from tests.cluster.rig import GATEWAY_IMAGE, gpu_resource, on_gpu_node
from tests.integration.machine import REPOSITORY, until
from tests.integration.serving import Gateway

CHART = REPOSITORY / "charts/elastic-gateway"

SMALL = {"image": KERNEL, "pull_policy": "Never", "cpu": "10m", "memory": "256Mi"}


class Release(Gateway):
    """A gateway in a pod, addressed through its Service; it has no process here."""

    def __init__(self, cluster: Cluster, namespace: str, kernels: str) -> None:
        self.cluster, self.namespace, self.kernels = cluster, namespace, kernels
        self.resource = gpu_resource(namespace)
        repository, _, tag = GATEWAY_IMAGE.rpartition(":")
        self.values: dict[str, Any] = {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "kernels": {"namespace": kernels},
            "profiles": {"default": SMALL, "gpu": {**SMALL, "gpu_resource": self.resource, "node_selector": on_gpu_node(cluster)}},
            "kernelspecs": {"elastic": {"displayName": "Elastic"}, "gpu": {"displayName": "With a GPU", "profile": "gpu"},
                            "elastic-python": None},
            "leases": {"min_hold": 0},
            "simulatedGpus": 1,
            "service": {"type": "NodePort"},
            "resources": {"requests": {"cpu": "10m"}},
        }  # fmt: skip
        self.upgrade()
        self.connect()

    def connect(self) -> None:
        """To its Service, with the token that the Secret has now."""
        cluster, namespace = self.cluster, self.namespace
        service = cluster.get("service", "elastic-gateway", "-n", namespace)
        node = cluster.get("nodes")["items"][0]
        host = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
        self.url = f"http://{host}:{service['spec']['ports'][0]['nodePort']}"
        secret = cluster.get("secret", "elastic-gateway-token", "-n", namespace)
        self.token = b64decode(secret["data"]["token"]).decode()
        self.headers = {"Authorization": f"token {self.token}"}
        until(self.answers)

    def upgrade(self, **values: Any) -> None:
        """Install or upgrade; returns once the new gateway is ready."""
        self.helm("upgrade", "--install", "elastic-gateway", str(CHART), "--values", "-", values=self.values | values)

    def rollback(self, revision: int) -> None:
        self.helm("rollback", "elastic-gateway", str(revision))

    def helm(self, *args: str, values: dict[str, Any] | None = None) -> None:
        try:
            self.cluster.helm(
                *args, "-n", self.namespace, "--wait", "--timeout", "90s", stdin=json.dumps(values) if values else None, timeout=120
            )  # fmt: skip
        except Exception as exc:
            exc.add_note(self.log)
            raise

    def pod(self) -> dict[str, Any]:
        """The gateway's own, once there is exactly one."""

        def only() -> dict[str, Any] | None:
            found = self.cluster.get("pods", "-n", self.namespace, "-l", "app.kubernetes.io/component=gateway")["items"]
            return found[0] if len(found) == 1 else None

        return until(only)

    def pods(self, role: str) -> list[dict[str, Any]]:
        return self.cluster.get("pods", "-n", self.kernels, "-l", names.selector(role=role))["items"]

    @property
    def log(self) -> str:
        return self.cluster.kubectl("logs", "-n", self.namespace, "-l", "app.kubernetes.io/component=gateway", "--tail=60")


@pytest.fixture
def kernels_namespace(cluster: Cluster) -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}-kernels"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "serviceaccount/default", "-n", name, "--for=create", "--timeout=30s")
    yield name
    cluster.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force", "--wait=false")
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def release(cluster: Cluster, namespace: str, kernels_namespace: str, gateway_image: str) -> Iterator[Release]:
    restricted = ["pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/enforce-version=latest"]
    for name in (namespace, kernels_namespace):
        cluster.kubectl("label", "namespace", name, *restricted)
    yield Release(cluster, namespace, kernels_namespace)
    cluster.helm("uninstall", "elastic-gateway", "-n", namespace)  # with it what is not in a namespace
