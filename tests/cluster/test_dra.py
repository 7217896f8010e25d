"""``gpu_sees: claim``: a kernel's pod has a claim with admin access, so that it takes nothing from anybody; slots count as ever.

What is shown is what the cluster does: the claim is made and allocated, the node's driver is asked before the pod starts, and the same
device is still to be had by others. That the container then sees the device is the container runtime's work, which injects what a real
driver names by CDI (containerd 1.7 or newer): no test here can show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.dra_driver import DraDriver
from tests.cluster.images import KERNEL
from tests.cluster.rig import PodGateway
from tests.integration.machine import Machine, until
from tests.integration.serving import GPU

DRA = "resource.k8s.io/v1"


@pytest.fixture
def driver(cluster: Cluster, namespace: str) -> Iterator[DraDriver]:
    """Of a kind of device that only this test has: one, on the node of the GPUs, and a template that claims all of them as an admin."""
    name = f"{namespace}.example.com"
    folder = cluster.node(1).folder / "lib/kubelet"
    driver = DraDriver(folder, name)
    until(lambda: driver.registered)
    pool = {"name": cluster.gpu_node, "generation": 1, "resourceSliceCount": 1}
    selectors = [{"cel": {"expression": f'device.driver == "{name}"'}}]
    all_of_them = {"deviceClassName": name, "allocationMode": "All", "adminAccess": True}
    cluster.kubectl("label", "namespace", namespace, "resource.kubernetes.io/admin-access=true")
    cluster.apply(
        {"apiVersion": DRA, "kind": "ResourceSlice", "metadata": {"name": name},
         "spec": {"driver": name, "nodeName": cluster.gpu_node, "pool": pool, "devices": [{"name": "gpu-0"}]}},
        {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}},
    )  # fmt: skip
    cluster.apply(template("all-gpus", all_of_them), namespace=namespace)
    yield driver
    cluster.kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=1", "--timeout=60s")
    cluster.kubectl("delete", f"resourceslice/{name}", f"deviceclass/{name}")
    driver.close()


def template(name: str, request: dict[str, Any]) -> dict[str, Any]:
    devices = {"requests": [{"name": "gpus", "exactly": request}]}
    return {"apiVersion": DRA, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}


def test_a_kernel_with_an_admin_claim_leases_by_slots_and_leaves_the_device_to_others(
    one_gpu: DevicePlugin, driver: DraDriver, cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine
) -> None:
    gateway = PodGateway(pod_machine, cluster, namespace, more={"gpu": {"gpu_sees": "claim", "gpu_claim": "all-gpus"}})
    try:
        with gateway.kernel("gpu") as kernel:
            browser = kernel.open()
            assert browser.run(GPU + "v = 1").status == "ok"
            [pod] = gateway.pods(names.ROLE_KERNEL)
            [claim] = cluster.get("resourceclaims", "-n", namespace)["items"]
            assert claim["metadata"]["ownerReferences"][0]["name"] == pod["metadata"]["name"]
            [device] = claim["status"]["allocation"]["devices"]["results"]
            assert (device["device"], device["adminAccess"]) == ("gpu-0", True)
            assert driver.prepared == [claim["metadata"]["name"]]
            [slot] = gateway.pods(names.ROLE_SLOT)
            assert slot["spec"].get("resourceClaims") is None and slot["spec"]["nodeName"] == pod["spec"]["nodeName"]

            # the device is nobody's: a pod that claims it for itself gets it
            cluster.apply(template("one-gpu", {"deviceClassName": device["driver"]}), namespace=namespace)
            container = {"name": "main", "image": KERNEL, "imagePullPolicy": "Never", "command": ["sleep", "600"],
                         "resources": {"claims": [{"name": "mine"}]}}  # fmt: skip
            spec = {"containers": [container], "resourceClaims": [{"name": "mine", "resourceClaimTemplateName": "one-gpu"}],
                    "terminationGracePeriodSeconds": 1}  # fmt: skip
            cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": spec}, namespace=namespace)
            cluster.kubectl("wait", "pod/other", "-n", namespace, "--for=condition=Ready", "--timeout=60s")
            assert browser.run(GPU + "print(v)").out == "1\n"
            cluster.kubectl("delete", "pod", "other", "-n", namespace)
        until(lambda: cluster.get("resourceclaims", "-n", namespace)["items"] == [])
    finally:
        gateway.end()
