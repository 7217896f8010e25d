"""GPUs of several kinds on one node: whole ones and slices, say, each with a profile of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster
from tests.cluster.rig import PodGateway, gpu_resource, on_gpu_node
from tests.integration.machine import Machine, until
from tests.integration.serving import GPU


@pytest.fixture
def kinds(cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine) -> Iterator[PodGateway]:
    """One GPU of one kind and two of another, of the profiles ``gpu`` and ``anywhere``."""
    one, other = gpu_resource(namespace), f"{gpu_resource(namespace)}-slice"
    with cluster.devices(one, ["GPU-0"]), cluster.devices(other, ["SLICE-0", "SLICE-1"]):
        more = {"anywhere": {"gpu_resource": other, "node_selector": on_gpu_node(cluster)}}
        gateway = PodGateway(pod_machine, cluster, namespace, simulated=None, more=more)
        until(lambda: len(gateway.gpu()["gpus"]) == 3)
        yield gateway
        gateway.end()


def test_each_kernel_leases_gpus_of_its_own_kind_and_the_scheduler_counts_them_as_such(kinds: PodGateway) -> None:
    visible = GPU + "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    slices = [kinds.kernel("anywhere", KERNEL_USERNAME=user) for user in ("ada", "bob")]
    whole = kinds.kernel("gpu", KERNEL_USERNAME="cy")
    one, two = (kernel.open() for kernel in slices)
    assert {one.run(visible).out.strip(), two.run(visible).out.strip()} == {"SLICE-0", "SLICE-1"}
    assert whole.open().run(visible).status == "ok"
    asked = {
        pod["metadata"]["labels"][names.KERNEL]: set(pod["spec"]["containers"][0]["resources"]["limits"]) - {"memory"}
        for pod in kinds.pods(names.ROLE_SLOT)
    }
    assert asked == {
        slices[0].id: {f"{kinds.resource}-slice"}, slices[1].id: {f"{kinds.resource}-slice"}, whole.id: {kinds.resource},
    }  # fmt: skip


def test_a_kernel_leases_as_it_was_started_though_its_profile_has_gone(kinds: PodGateway) -> None:
    with kinds.kernel("gpu") as kernel:
        browser = kernel.open()
        assert browser.run("v = 1").status == "ok"
        kinds.stop()
        config = json.loads((kinds.machine.root / "c/jupyter_elastic_gateway_config.json").read_text())
        profiles = config["KubernetesBackend"]["profiles"]
        config["KubernetesBackend"]["profiles"] = {"default": profiles["default"], "renamed": profiles["gpu"]}
        kinds.machine.configure(**config)
        kinds.start()
        assert kernel.open().run(GPU + "print(v)").out == "1\n"
        [slot] = kinds.pods(names.ROLE_SLOT)
        assert slot["spec"]["containers"][0]["resources"]["limits"][kinds.resource] == "1"
        late = kinds.kernel("gpu").open().run("1")
        assert "asks for the profile 'gpu', and there are: default, renamed" in late.evalue, "a kernelspec of before stops nobody else"
