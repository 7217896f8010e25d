"""Workers of an elastic burst beyond its least, where the administrator has named a low priority for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.rig import PodGateway, foreign_pod, gpu_resource
from tests.cluster.test_bursts_elastic import said, sizes, stepping, works
from tests.integration.machine import Machine, until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def with_priorities(
    cluster: Cluster, namespace: str, one_gpu: DevicePlugin, gateway_image: str, pod_machine: Machine
) -> Iterator[PodGateway]:  # fmt: skip
    """Two GPUs on one node, and a low priority for workers beyond the least."""
    one_gpu.offer(["GPU-0", "GPU-1"])
    until(lambda: cluster.get("node", cluster.gpu_node)["status"]["allocatable"].get(gpu_resource(namespace)) == "2")
    spare = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": f"spare-{namespace}"}, "value": -100}
    cluster.apply({**spare, "preemptionPolicy": "Never"})
    gateway = PodGateway(pod_machine, cluster, namespace, more={"gpu": {"gpus": 1, "flex_priority_class": f"spare-{namespace}"}})
    yield gateway
    gateway.end()
    cluster.kubectl("delete", "priorityclass", f"spare-{namespace}")


def test_the_scheduler_takes_the_gpu_of_a_worker_beyond_the_least_for_a_pod_of_others_and_no_step_is_lost(
    with_priorities: PodGateway,
) -> None:
    with with_priorities.kernel("gpu", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping("-w 1:2 -g 1 -e none --name yielding --show 0", steps=250))
        works(browser, cell, 2)
        with_priorities.cluster.apply(foreign_pod(with_priorities.namespace), namespace=with_priorities.namespace)
        works(browser, cell, 1)
        pod = until(lambda: with_priorities.cluster.get("pod", "foreign", "-n", with_priorities.namespace))
        until(lambda: pod_runs(with_priorities, pod["metadata"]["name"]), 60)
        done = browser.finish(cell, 200)
        assert done.status == "ok", (done, with_priorities.log[-3000:])
        found = sizes(browser, 250)
        assert found[-2:] == [2, 1]
        assert "Other workers go on from" not in said(browser, cell), "nothing was lost"


def pod_runs(gateway: PodGateway, name: str) -> bool:
    return bool(gateway.cluster.get("pod", name, "-n", gateway.namespace)["status"].get("phase") == "Running")
