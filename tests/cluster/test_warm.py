"""Warm kernels: started for nobody, claimed by a start, replaced, and never lost or left over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
import requests

from gateway.backends.kubernetes import names
from gateway.backends.kubernetes.profiles import quantity
from tests import budget
from tests.cluster.cluster import Cluster
from tests.cluster.rig import PodGateway
from tests.integration.machine import REPOSITORY, Machine, until
from tests.integration.serving import GPU, Kernel

pytestmark = pytest.mark.usefixtures("one_gpu")


@pytest.fixture
def warm(cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine) -> Iterator[PodGateway]:
    """A gateway that keeps one warm kernel."""
    gateway = PodGateway(pod_machine, cluster, namespace, warm=1)
    yield gateway
    gateway.end()


def metric(gateway: PodGateway, name: str) -> float:
    lines = gateway.call("GET", "/metrics").text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)


def ready(gateway: PodGateway) -> bool:
    return metric(gateway, 'elastic_warm_kernels{profile="warm"}') == 1


def waiting(gateway: PodGateway) -> set[str]:
    """Names of the pods that are nobody's."""
    return {pod["metadata"]["name"] for pod in gateway.pods(names.ROLE_KERNEL) if names.WARM in pod["metadata"]["labels"]}


def test_a_start_claims_a_warm_kernel_which_is_then_like_any_other_and_another_takes_its_place(warm: PodGateway) -> None:
    until(lambda: ready(warm))
    [pod] = waiting(warm)
    with warm.kernel("warm", KERNEL_USERNAME="ada", KERNEL_WISH="a 'b'\n", KERNEL_WORKING_DIR="/var") as kernel:
        browser = kernel.open()
        show = "import os; print(os.environ['KERNEL_USERNAME'], repr(os.environ['KERNEL_WISH']), os.getcwd())"
        assert browser.run(show).out == """ada "a 'b'\\n" /var\n"""
        assert browser.run("import socket; print(socket.gethostname())").out.strip() == pod
        assert browser.run("%history -g -l 1").status == "ok"
        [shown] = [each for each in warm.pods(names.ROLE_KERNEL) if each["metadata"]["name"] == pod]
        assert names.WARM not in shown["metadata"]["labels"]
        assert (shown["metadata"]["labels"][names.KERNEL], shown["metadata"]["labels"][names.USER]) == (kernel.id, "ada")
        assert browser.run(GPU + "print('on it')").out == "on it\n"
        assert kernel.lease["user"] == "ada"
        assert metric(warm, 'elastic_warm_claims{profile="warm",result="hit"}') == 1
        until(lambda: ready(warm))
        assert waiting(warm) != {pod}
        assert kernel.call("POST", "/restart").status_code == 200
        assert browser.run(show).out == """ada "a 'b'\\n" /var\n""", "a new process knows it, too"
        warm.stop()
        warm.start()
        assert kernel.open().run(show).out == """ada "a 'b'\\n" /var\n"""
        assert len(waiting(warm)) == 1, "the next gateway goes on with those that are there"
    until(lambda: {each["metadata"]["name"] for each in warm.pods(names.ROLE_KERNEL)} == waiting(warm))


def test_a_warm_kernel_gives_way_to_one_that_finds_no_room_and_comes_back_when_there_is_room(
    cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine
) -> None:
    cores = float(quantity(cluster.get("node", cluster.gpu_node)["status"]["allocatable"]["cpu"]))
    most = {"cpu": f"{int(600 * cores)}m"}
    gateway = PodGateway(pod_machine, cluster, namespace, warm=1, more={"warm": most, "gpu": most})
    try:
        until(lambda: ready(gateway))
        [pod] = waiting(gateway)
        with gateway.kernel("gpu") as kernel:
            assert kernel.open().run("print('there is room')").out == "there is room\n"
            assert pod not in {each["metadata"]["name"] for each in gateway.pods(names.ROLE_KERNEL)}
        until(lambda: ready(gateway))
    finally:
        gateway.end()


# generation; Secret, pod, the Secret's owner; claim, label; Secret, pod, owner of the next; the kernel's end
WRITES = [(writes,) for writes in range(2, 11)]


@pytest.mark.parametrize("writes", budget.cases(WRITES, [(4,), (7,)]))
def test_a_gateway_killed_around_a_claim_loses_no_kernel_and_leaves_none_over(warm: PodGateway, writes: int) -> None:
    warm.call("POST", "/api/shutdown", json={"kernels": True})
    warm.process.wait(60)
    warm.program = (str(REPOSITORY / "tests/cluster/killed.py"), str(writes))
    asked: list[str] = []
    with suppress(requests.ConnectionError, requests.ReadTimeout, AssertionError, OSError):
        warm.start()
        until(lambda: warm.process.poll() is not None or ready(warm))
        asked.append(warm.kernel("warm", KERNEL_USERNAME="ada").id)
        Kernel(warm, asked[0]).open().run("v = 1", seconds=30)
        until(lambda: warm.process.poll() is not None or ready(warm))
        Kernel(warm, asked[0]).call("DELETE")
    warm.process.kill()
    warm.process.wait()
    warm.program = PodGateway.program
    warm.start()

    listed = [model["id"] for model in warm.call("GET", "/api/kernels").json()]
    assert set(listed) <= set(asked)
    for kernel_id in listed:
        done = Kernel(warm, kernel_id).open().run("import os; print(os.environ['KERNEL_USERNAME'])")
        assert done.out == "ada\n" or (writes > 9 and done.ename == "KernelDied"), done
    until(lambda: ready(warm))
    until(lambda: len(warm.pods(names.ROLE_KERNEL)) == len(listed) + 1 == len(warm.secrets()))
    for kernel_id in listed:
        assert Kernel(warm, kernel_id).call("DELETE").status_code == 204
    warm.call("POST", "/api/shutdown", json={"kernels": True})
    warm.process.wait(60)
    until(lambda: warm.pods(names.ROLE_KERNEL) == [] and warm.secrets() == [])
