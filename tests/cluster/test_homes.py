"""Where a driver brings parked state back to no other GPU: the slot of a GPU stays with the kernels that are at home on it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.rig import PodGateway, foreign_pod
from tests.integration.machine import Machine, until
from tests.integration.serving import GPU


@pytest.fixture
def homes(cluster: Cluster, namespace: str, one_gpu: DevicePlugin, gateway_image: str, pod_machine: Machine) -> Iterator[PodGateway]:
    """A gateway with two GPUs on a node whose driver is of that kind."""
    one_gpu.offer(["GPU-0", "GPU-1"])
    gateway = PodGateway(pod_machine, cluster, namespace, "SimulatedGpu.rung=same-gpu")
    until(lambda: len(gateway.gpu()["gpus"]) == 2)
    yield gateway
    gateway.end()


def slots(gateway: PodGateway) -> dict[str, str]:
    """Those that are not on their way out: whose each is, by uid."""
    return {
        pod["metadata"]["uid"]: pod["metadata"]["labels"][names.KERNEL]
        for pod in gateway.pods(names.ROLE_SLOT)
        if not pod["metadata"].get("deletionTimestamp")
    }


def phase(gateway: PodGateway) -> Any:
    return gateway.cluster.get("pod", "foreign", "-n", gateway.namespace)["status"].get("phase")


def test_kernels_at_home_on_a_gpu_share_its_slot_which_others_get_once_their_state_is_gone(homes: PodGateway) -> None:
    def release(*kernels: Any) -> None:
        for kernel in kernels:
            homes.call("POST", f"/api/gpu/kernels/{kernel.id}/release")  # it may have given way by itself
            until(lambda kernel=kernel: kernel.lease["phase"] == "PARKED")

    one, two, three = (homes.kernel("gpu", KERNEL_USERNAME=user) for user in ("ada", "bob", "cy"))
    first, second, third = one.open(), two.open(), three.open()
    first.run(GPU + "v = 1")
    second.run(GPU + "v = 2")
    both = slots(homes)
    assert set(both.values()) == {one.id, two.id}
    [home] = [uid for uid, kernel in both.items() if kernel == one.id]

    # 1. a third comes to the GPU that was idle longest, and shares its slot with the kernel that is at home there from then on
    assert third.run(GPU + "v = 3; print(v)").out == "3\n"
    until(lambda: slots(homes) == {**both, home: three.id})
    assert first.run(GPU + "print(v)").out == "1\n"
    until(lambda: slots(homes) == {**both, home: one.id})

    # 2. nobody holds it, and it stays: another slot might get another GPU
    release(one, two)
    homes.cluster.apply(foreign_pod(homes.namespace), namespace=homes.namespace)
    until(lambda: "Insufficient" in str(homes.cluster.get("pod", "foreign", "-n", homes.namespace)["status"].get("conditions")))
    assert set(slots(homes)) == set(both)

    # 3. over a killed gateway, too, and each comes back to what it left
    homes.stop(signal.SIGKILL)
    homes.start()
    assert three.open().run(GPU + "print(v)").out == "3\n"
    assert slots(homes)[home] == three.id
    release(three)
    assert set(slots(homes)) == set(both) and phase(homes) == "Pending"

    # 4. a pod of others waits for one, and is seen to; it keeps nobody from coming back to what is no other's
    def who_waits() -> list[str]:
        return [each["kernel_id"] for each in homes.gpu()["queue"]]

    until(lambda: who_waits() == [f"pod {homes.namespace}/foreign"])
    assert two.open().run(GPU + "print(v)").out == "2\n"
    release(two)

    # 5. the kernel that a slot goes with may end: it stays for the other, and others get it after that one
    assert three.call("DELETE").status_code == 204
    until(lambda: slots(homes).get(home) == one.id)
    assert one.open().run(GPU + "print(v)").out == "1\n"
    assert one.call("DELETE").status_code == 204
    until(lambda: phase(homes) == "Running")
    assert list(slots(homes).values()) == [two.id]
