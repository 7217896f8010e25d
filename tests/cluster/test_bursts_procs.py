"""Workers of several ranks in pods, and pods from another image than the kernel's."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.images import KERNEL
from tests.cluster.rig import GATEWAY_IMAGE, PodGateway, gpu_resource
from tests.cluster.test_bursts import left
from tests.cluster.test_bursts_elastic import scale, sizes, stepping, works
from tests.integration.machine import Machine, until

pytestmark = pytest.mark.timeout(300)
WHERE = (
    "import os, socket\nfound = RANK, WORLD_SIZE, LOCAL_RANK, int(os.environ['LOCAL_WORLD_SIZE'])\n"
    "host, sees = socket.gethostname(), os.environ.get('NVIDIA_VISIBLE_DEVICES', '')\nprint('rank', RANK)\n"
)


def images(gateway: PodGateway) -> set[str]:
    """Of all pods of bursts."""
    return {each["image"] for pod in gateway.pods(names.ROLE_RANK) for each in pod["spec"]["containers"]}


def test_two_pods_are_four_ranks_and_one_that_fails_is_told_by_its_number(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.run(f"%%distributed -w 2 -e none --procs 2 --ranks all\n{WHERE}", 120)
        assert cell.status == "ok", (cell, pods.log[-3000:])
        assert sorted(cell.out.splitlines()) == [f"[{rank}] rank {rank}" for rank in range(4)]
        ranks = [(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)]
        assert browser.run("print(found, host[0] == host[1] != host[2] == host[3])").out == f"{ranks} True\n"
        assert browser.run("%burst logs burst-1 -r 3").out == "rank 3\n"
        failed = browser.run(
            "%%distributed -w 2 -e none --procs 2\nimport time\nif RANK == 3: raise ValueError('boom')\ntime.sleep(600)", 120
        )
        assert (failed.ename, failed.evalue) == ("ValueError", "boom"), failed
        assert "Rank 3 failed" in json.dumps(pods.call("GET", "/api/bursts").json())
        until(lambda: left(pods) == [])
        shown = browser.run("%%distributed -w 2 -e none --procs 2 --dry-run\nprint(1)").out
        assert f'"{names.PROCS}": "2"' in shown


def test_workers_of_two_ranks_come_and_go_with_both(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping("-w 1:2 -e none --procs 2 --name pairs --show 0", steps=120))
        works(browser, cell, 2, 2)
        scale(pods, "pairs", 2)
        works(browser, cell, 4, 2)
        assert len(pods.pods(names.ROLE_RANK)) == 2
        scale(pods, "pairs", 1)
        done = browser.finish(cell, 150)
        assert done.status == "ok", (done, pods.log[-3000:])
        assert sizes(browser, 120) == [2, 4, 2]
        until(lambda: left(pods) == [])


@pytest.fixture
def with_gpus(
    cluster: Cluster, namespace: str, one_gpu: DevicePlugin, gateway_image: str, pod_machine: Machine
) -> Iterator[PodGateway]:  # fmt: skip
    """Two GPUs on one node."""
    one_gpu.offer(["GPU-0", "GPU-1"])
    until(lambda: cluster.get("node", cluster.gpu_node)["status"]["allocatable"].get(gpu_resource(namespace)) == "2")
    gateway = PodGateway(pod_machine, cluster, namespace, more={"gpu": {"gpus": 1}})
    yield gateway
    gateway.end()


def test_the_ranks_of_a_worker_share_the_gpus_of_its_pod_which_count_once(with_gpus: PodGateway) -> None:
    with with_gpus.kernel("gpu", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(f"%%distributed -w 1 -g 2 -e none --procs 2 --ranks all\nimport time\ntime.sleep(5)\n{WHERE}")
        until(lambda: [each["gpus"] for each in with_gpus.call("GET", "/api/gpu").json()["elsewhere"]] == [2])
        [pod] = until(lambda: with_gpus.pods(names.ROLE_RANK))
        assert pod["spec"]["containers"][0]["resources"]["limits"][with_gpus.resource] == "2"
        done = browser.finish(cell, 120)
        assert done.status == "ok", (done, with_gpus.log[-3000:])
        assert browser.run("print([set(each.split(',')) == {'GPU-0', 'GPU-1'} for each in sees])").out == "[True, True]\n"
        until(lambda: with_gpus.call("GET", "/api/gpu").json()["elsewhere"] == [])


@pytest.fixture
def with_images(cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine) -> Iterator[PodGateway]:
    """Whose users may choose among images of one name."""
    fields = {"overrides": {"KERNEL_IMAGE": [GATEWAY_IMAGE, "localhost/elastic-nobody:*"]}}
    gateway = PodGateway(pod_machine, cluster, namespace, more={"default": fields})
    yield gateway
    gateway.end()


def test_workers_have_another_image_where_the_profile_lets_it_in(with_images: PodGateway) -> None:
    with with_images.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run("x = 40")
        words = "-w 1 -e none --name other"
        cell = browser.begin(f"%%distributed {words} --image {GATEWAY_IMAGE}\nimport time\ntime.sleep(3)\nresult = x + 2")
        until(lambda: images(with_images) == {GATEWAY_IMAGE})
        done = browser.finish(cell, 120)
        assert done.status == "ok", (done, with_images.log[-3000:])
        assert browser.run("print(result)").out == "42\n"
        assert with_images.call("GET", "/api/bursts/other").json()["image"] == GATEWAY_IMAGE
        both = browser.begin(f"%%distributed -w 1:2 -e none --image {GATEWAY_IMAGE} --restartable\nimport time\ntime.sleep(60)")
        until(lambda: images(with_images) == {GATEWAY_IMAGE})
        name = with_images.call("GET", "/api/bursts").json()["bursts"][-1]["name"]
        scale(with_images, name, 2)
        until(lambda: len(with_images.pods(names.ROLE_RANK)) == 2)
        assert images(with_images) == {GATEWAY_IMAGE}, "workers beyond the least too"
        kernel.call("POST", "/interrupt")
        assert browser.finish(both).ename == "KeyboardInterrupt"
        refused = browser.run(f"%%distributed {words} --image localhost/evil:1\nprint(1)").err
        assert "--image can't be had: KERNEL_IMAGE is 'localhost/evil:1'" in refused and KERNEL not in refused
        absent = browser.run(f"%%distributed {words} --image localhost/elastic-nobody:1\nprint(1)", 120)
        assert absent.status == "error" and "image" in absent.evalue, absent
        until(lambda: left(with_images) == [])
