"""A gateway that is killed between any two writes to the cluster: the next one finds every kernel, and nothing is left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import TimeoutExpired

import pytest
import requests

from gateway.backends.kubernetes import names
from tests import budget
from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.rig import PodGateway
from tests.integration.machine import REPOSITORY, Machine, until
from tests.integration.serving import GPU, Kernel


@dataclass
class Told:
    """What a gateway was asked for until it died."""

    kernels: list[Kernel] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)

    def start(self, gateway: PodGateway, name: str, user: str) -> None:
        self.kernels.append(gateway.kernel(name, KERNEL_USERNAME=user))
        self.kernels[-1].open().run(GPU + f"v = {user!r}", seconds=30)

    def end(self, kernel: Kernel) -> None:
        self.deleted.add(kernel.id)
        kernel.call("DELETE")


def two_share(gateway: PodGateway, told: Told) -> None:
    """Two kernels are started, share a GPU, give it back, take it again, and end."""
    for user in ("ada", "bob"):
        told.start(gateway, "gpu", user)
    gateway.call("POST", f"/api/gpu/kernels/{told.kernels[1].id}/release")
    told.kernels[0].open().run(GPU + "v", seconds=30)
    for kernel in told.kernels:
        told.end(kernel)


def one_is_warm(gateway: PodGateway, told: Told) -> None:
    """A warm kernel is made, claimed, and another made in its place."""
    until(lambda: 'elastic_warm_kernels{profile="warm"} 1.0' in gateway.call("GET", "/metrics").text, seconds=30)
    told.start(gateway, "warm", "ada")
    until(lambda: 'elastic_warm_kernels{profile="warm"} 1.0' in gateway.call("GET", "/metrics").text, seconds=30)
    told.end(told.kernels[0])


def three_have_two_homes(gateway: PodGateway, told: Told) -> None:
    """The slot of a GPU goes between the kernels that are at home on it, stays while nobody holds it, and outlives its own kernel."""
    until(lambda: len(gateway.gpu()["gpus"]) == 2)
    for user in ("ada", "bob", "cy"):
        told.start(gateway, "gpu", user)
    one, _, three = told.kernels
    gateway.call("POST", f"/api/gpu/kernels/{three.id}/release")
    told.end(three)
    one.open().run(GPU + "v", seconds=30)
    gateway.call("POST", f"/api/gpu/kernels/{one.id}/release")
    told.end(one)


def a_node_is_drained(gateway: PodGateway, told: Told) -> None:
    """A kernel's node goes out of service and comes back."""
    drain = f"/api/gpu/nodes/{gateway.cluster.gpu_node}/drain"
    told.start(gateway, "gpu", "ada")
    gateway.call("POST", drain, json={"on": True})
    until(lambda: told.kernels[0].lease["phase"] == "PARKED", seconds=30)
    gateway.call("POST", drain, json={"on": False})
    told.kernels[0].open().run(GPU + "v", seconds=30)


Life = Callable[[PodGateway, Told], None]

# By life, after which of its writes. Of the first: generation, code; each kernel's Secret, pod, and the Secret's owner; slot; ...
ALWAYS = [(two_share, (4,)), (two_share, (8,)), (two_share, (11,)), (one_is_warm, (6,)), (three_have_two_homes, (16,)), (two_share, (3, 2))]
KILLS = [
    *((two_share, (after,)) for after in range(2, 15)),
    *((one_is_warm, (after,)) for after in range(3, 11)),
    *((three_have_two_homes, (after,)) for after in range(14, 20)),
    *((a_node_is_drained, (after,)) for after in (7, 8)),
    # and the gateway that finds what is left is killed as well
    *((two_share, (3, then)) for then in (1, 2, 3, 4)),  # there was a Secret without a pod
    *((two_share, (4, then)) for then in (1, 2)),  # a pod whose Secret wouldn't go with it
    *((one_is_warm, (6, then)) for then in (1, 2)),  # a claim that isn't shown yet
    (two_share, (12, 1)),  # slots have come and gone
]


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest, cluster: Cluster, namespace: str, one_gpu: DevicePlugin, gateway_image: str, pod_machine: Machine
) -> Iterator[PodGateway]:  # fmt: skip
    """As the life needs it."""
    life = request.node.callspec.params["life"]
    homes = life is three_have_two_homes
    if homes:
        one_gpu.offer(["GPU-0", "GPU-1"])
    settings = ("SimulatedGpu.rung=same-gpu",) if homes else ()
    gateway = PodGateway(pod_machine, cluster, namespace, *settings, warm=int(life is one_is_warm))
    yield gateway
    gateway.end()


def shown(gateway: PodGateway, warm: bool) -> set[str]:
    """Whose the kernels' pods are: kernels' ids, or those of warm ones."""
    labels = [pod["metadata"]["labels"] for pod in gateway.pods(names.ROLE_KERNEL)]
    return {each[names.KERNEL] for each in labels if (names.WARM in each) == warm}


def named(value: Life | tuple[int, ...]) -> str:
    return value.__name__ if callable(value) else "-".join(map(str, value))


@pytest.mark.parametrize(
    ("life", "after"),
    budget.cases(KILLS, ALWAYS),
    ids=named,
)
def test_nothing_is_lost_and_nothing_is_left_over(gateway: PodGateway, life: Life, after: tuple[int, ...]) -> None:
    told = Told()
    for number, writes in enumerate(after):
        gateway.stop() if number == 0 else gateway.process.kill()
        gateway.process.wait()
        gateway.program = (str(REPOSITORY / "tests/cluster/killed.py"), str(writes))
        with suppress(AssertionError):
            gateway.start()
        with suppress(requests.ConnectionError, requests.ReadTimeout, AssertionError, OSError, TimeoutExpired):
            if number == 0:
                life(gateway, told)
            else:
                gateway.process.wait(10)
    gateway.process.kill()
    gateway.process.wait()
    gateway.program = PodGateway.program
    gateway.start()

    # 1. what is there, is listed and works, with what it knew
    listed = {model["id"] for model in gateway.call("GET", "/api/kernels").json()}
    assert {kernel.id for kernel in told.kernels} >= listed, "none but those that were asked for"
    for kernel_id in listed:
        done = Kernel(gateway, kernel_id).open().run(GPU + "print('works')")
        ending = kernel_id in told.deleted and done.ename == "KernelDied"  # its end had begun: it is shown as dead, and can be deleted
        assert done.out == "works\n" or ending, done

    # 2. nothing else is there
    until(lambda: shown(gateway, warm=False) == {names.slug(kernel_id, 63) for kernel_id in listed})
    until(lambda: len(shown(gateway, warm=True)) == int(life is one_is_warm))
    until(lambda: set(gateway.secrets()) == {pod["metadata"]["name"] for pod in gateway.pods(names.ROLE_KERNEL)})

    # 3. one holder of each GPU; one slot each, and none without a lease, but where a GPU is the home of parked state
    def settled() -> bool:
        held = [unit for lease in gateway.gpu()["leases"] for unit in lease["gpus"]]
        there = [pod for pod in gateway.pods(names.ROLE_SLOT) if not pod["metadata"].get("deletionTimestamp")]
        gpus = 2 if life is three_have_two_homes else 1
        assert len(held) == len(set(held)) <= gpus
        return len(held) <= len(there) <= gpus if gpus == 2 else len(there) == len(held)

    until(settled)
    for kernel_id in listed:
        assert Kernel(gateway, kernel_id).call("DELETE").status_code == 204
    until(lambda: shown(gateway, warm=False) == set() and gateway.pods(names.ROLE_SLOT) == [])
    gateway.end()
    until(lambda: gateway.pods(names.ROLE_KERNEL) == [] and gateway.secrets() == [])
