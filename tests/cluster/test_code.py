"""How our code comes into pods: by a Secret for each version, which is there as long as a pod mounts it."""

from __future__ import annotations

from gateway.backends.kubernetes import names
from tests.cluster.rig import PodGateway
from tests.integration.machine import REPOSITORY, until


def codes(gateway: PodGateway) -> set[str]:
    found = gateway.cluster.get("secrets", "-n", gateway.namespace, "-l", names.selector(role=names.ROLE_CODE))["items"]
    return {each["metadata"]["name"] for each in found}


def test_two_versions_of_the_code_lie_side_by_side_while_kernels_of_both_run_and_none_is_left_over(pods: PodGateway) -> None:
    kernel = pods.kernel("default")
    kernel.open().run("v = 1")
    [first] = codes(pods)
    pods.stop()
    pods.program = (str(REPOSITORY / "tests/cluster/other_code.py"),)
    pods.start()
    assert kernel.open().run("print(v)").out == "1\n"
    assert pods.kernel("default").open().run("print('up')").out == "up\n"
    assert len(codes(pods)) == 2 and first in codes(pods)
    [second] = codes(pods) - {first}

    # one that is deleted by hand is made anew for the next pod
    pods.cluster.kubectl("delete", "secret", second, "-n", pods.namespace)
    assert pods.kernel("default").open().run("print('up')").out == "up\n"
    assert codes(pods) == {first, second}

    # once no pod mounts it, the next gateway clears it away; with all kernels all of it goes
    assert kernel.call("DELETE").status_code == 204
    until(lambda: kernel.id not in {pod["metadata"]["labels"][names.KERNEL] for pod in pods.pods(names.ROLE_KERNEL)})
    pods.stop()
    pods.start()
    assert codes(pods) == {second}
    pods.end()
    until(lambda: codes(pods) == set())
