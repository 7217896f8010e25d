"""A gateway that is killed between any two writes to the cluster: the next one finds every kernel, and nothing is left over."""

from __future__ import annotations

from contextlib import suppress

import pytest
import requests

from gateway.backends.kubernetes import names
from tests.cluster.rig import PodGateway
from tests.integration.machine import REPOSITORY, until
from tests.integration.serving import GPU, Kernel

pytestmark = pytest.mark.usefixtures("one_gpu")

# Of one life: generation; Secret, pod, the Secret's owner; slot; slot's end; slot; hand-over; pod's end, ...
WRITES = range(2, 13)


def life(gateway: PodGateway) -> tuple[list[Kernel], set[str]]:
    """Two kernels are started, share a GPU, give it back, take it again, and end; cut short by the gateway's death. The kernels, and the
    ids of those whose end was asked for."""
    kernels: list[Kernel] = []
    deleted: set[str] = set()
    with suppress(requests.ConnectionError, requests.ReadTimeout, AssertionError, OSError):
        for user in ("ada", "bob"):
            kernels.append(gateway.kernel("gpu", KERNEL_USERNAME=user))
            kernels[-1].open().run(GPU + f"v = {user!r}", seconds=30)
        gateway.call("POST", f"/api/gpu/kernels/{kernels[1].id}/release")
        kernels[0].open().run(GPU + "v", seconds=30)
        for kernel in kernels:
            deleted.add(kernel.id)
            kernel.call("DELETE")
    return kernels, deleted


@pytest.mark.parametrize("writes", WRITES)
def test_nothing_is_lost_and_nothing_is_left_over(pods: PodGateway, writes: int) -> None:
    pods.stop()
    pods.program = (str(REPOSITORY / "tests/cluster/killed.py"), str(writes))
    with suppress(AssertionError):
        pods.start()
    asked, deleted = life(pods)
    pods.process.kill()
    pods.process.wait()
    pods.program = PodGateway.program
    pods.start()

    # 1. what is there, is listed and works, with what it knew
    listed = {model["id"] for model in pods.call("GET", "/api/kernels").json()}
    assert {kernel.id for kernel in asked} >= listed, "none but those that were asked for"
    for kernel_id in listed:
        done = Kernel(pods, kernel_id).open().run(GPU + "print('works')")
        ending = kernel_id in deleted and done.ename == "KernelDied"  # its end had begun: it is shown as dead, and can be deleted
        assert done.out == "works\n" or ending, done

    # 2. nothing else is there
    expected = {names.kernel_pod(kernel_id) for kernel_id in listed}
    until(lambda: {pod["metadata"]["name"] for pod in pods.pods(names.ROLE_KERNEL)} == expected)
    until(lambda: set(pods.secrets()) == expected)

    # 3. one holder, one slot, and no slot without a lease
    def settled() -> bool:
        held = [unit for lease in pods.gpu()["leases"] for unit in lease["gpus"]]
        there = [pod for pod in pods.pods(names.ROLE_SLOT) if not pod["metadata"].get("deletionTimestamp")]
        assert len(held) == len(set(held)) <= 1
        return len(there) == len(held)

    until(settled)
    for kernel_id in listed:
        assert Kernel(pods, kernel_id).call("DELETE").status_code == 204
    until(lambda: pods.pods(names.ROLE_KERNEL) == pods.pods(names.ROLE_SLOT) == [] and pods.secrets() == [])
