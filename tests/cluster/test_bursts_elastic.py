"""Bursts in pods whose workers come and go: no committed step is lost, and none is done twice."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.rig import PodGateway, gpu_resource
from tests.cluster.test_bursts import left
from tests.integration.machine import Machine, until
from tests.integration.test_bursts_elastic import sizes as sizes_of

pytestmark = pytest.mark.timeout(300)
STEPS = 150
GROW_AFTER = 2.0  # seconds


def stepping(words: str, steps: int = STEPS, inside: str = "pass", seconds: float = 0.2) -> str:
    """A cell that commits each step and says so."""
    return (
        f"%%distributed {words}\nimport os, time\nfrom gateway import elastic\nstate = elastic.State(seen=[])\n"
        f"for step in state.range('step', {steps}):\n    time.sleep({seconds})\n    state.seen.append((step, WORLD_SIZE))\n"
        f"    {inside}\n    if step % 5 == 0: print('at', step, 'of', WORLD_SIZE, flush=True)\n    state.commit()\n"
        "seen, last = state.seen, WORLD_SIZE\n"
    )


def sizes(browser: Any, steps: int = STEPS) -> list[int]:
    return sizes_of(browser, steps)


def said(browser: Any, cell: str) -> str:
    return "".join(json.dumps(message["content"]) for message in browser.messages if message["parent"] == cell)


def works(browser: Any, cell: str, workers: int, more: int = 1) -> None:
    """Until so many workers have come ``more`` times to a place where they tell of it."""
    before = len(re.findall(rf"at \d+ of {workers}", said(browser, cell)))
    browser.wait(lambda m: len(re.findall(rf"at \d+ of {workers}", said(browser, cell))) >= before + more, 120)


def scale(gateway: PodGateway, name: str, workers: int | None) -> None:
    assert gateway.call("POST", f"/api/bursts/{name}/scale", json={"workers": workers}).status_code == 202


def burst(gateway: PodGateway, name: str) -> dict[str, Any]:
    found: dict[str, Any] = gateway.call("GET", f"/api/bursts/{name}").json()
    return found


def jobs(gateway: PodGateway) -> list[str]:
    return [job["metadata"]["name"] for job in gateway.cluster.get("jobs", "-n", gateway.namespace)["items"]]


def pod_of(gateway: PodGateway, rank: int) -> str:
    """The pod whose rank that is, while no other group is made ready. Ranks are numbered as their pods have asked for their plan."""
    find = "print(*(word.decode() for word in (each.parent / 'environ').read_bytes().split(b'\\0') if word.startswith(b'RANK=')))"
    pods = [pod["metadata"]["name"] for pod in gateway.pods(names.ROLE_RANK)]
    return next(name for name in pods if _with_workers(gateway, name, find).split() == [f"RANK={rank}"])


def kill(gateway: PodGateway, pod: str) -> None:
    """Its worker at once: nobody in it can say a word."""
    _with_workers(gateway, pod, "os.kill(int(each.parent.name), signal.SIGKILL)")


def _with_workers(gateway: PodGateway, pod: str, do: str) -> str:
    """What Python prints that does this with the process of each worker in a pod, whose command line is ``each``."""
    code = (
        "import os, pathlib, signal\nfor each in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
        f"    if b'gateway.pod.burst.worker' in each.read_bytes().split(b'\\0'): {do}"
    )
    return gateway.cluster.kubectl("exec", pod, "-n", gateway.namespace, "--", "python3", "-c", code)


def delete(gateway: PodGateway, pod: str) -> None:
    """As a drain, a preemption or the end of a spot node does: it is told first."""
    gateway.cluster.kubectl("delete", "pod", pod, "-n", gateway.namespace, "--wait=false")


@pytest.fixture
def growing(cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine) -> Iterator[PodGateway]:
    gateway = PodGateway(pod_machine, cluster, namespace, f"Bursts.grow_after={GROW_AFTER}")
    yield gateway
    gateway.end()


def test_workers_come_and_go_as_asked_and_no_step_is_lost_or_done_twice(growing: PodGateway) -> None:
    with growing.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping("-w 1:3 -e none --name changing --show 0"))
        works(browser, cell, 1, 2)
        scale(growing, "changing", 3)
        works(browser, cell, 3, 2)
        assert len(jobs(growing)) == 3
        scale(growing, "changing", 1)
        done = browser.finish(cell, 120)
        assert done.status == "ok", (done, growing.log[-3000:])
        assert sizes(browser) == [1, 3, 1]
        assert browser.run("print(last)").out == "1\n"
        until(lambda: left(growing) == [])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_costs_what_was_done_since_the_last_save(growing: PodGateway, rank: int) -> None:
    with growing.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping("-w 2:3 -e none --name losing --show 0 --save-every 1s", steps=100))
        works(browser, cell, 2, 3)
        kill(growing, pod_of(growing, rank))
        done = browser.finish(cell, 120)
        assert done.status == "ok", (done, growing.log[-3000:])
        assert sizes(browser, 100) == [2]
        assert "Other workers go on from its last save (step " in said(browser, cell)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_pod_that_the_cluster_takes_away_leaves_at_a_commit_and_another_takes_its_place(growing: PodGateway, rank: int) -> None:
    with growing.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping("-w 2:3 -e none --name moving --show 0", steps=100))
        works(browser, cell, 2, 3)
        before = {pod["metadata"]["name"] for pod in growing.pods(names.ROLE_RANK)}
        delete(growing, pod_of(growing, rank))
        done = browser.finish(cell, 150)
        assert done.status == "ok", (done, growing.log[-3000:])
        assert sizes(browser, 100) == [2]
        assert "Other workers go on from" not in said(browser, cell), "nothing was lost"
        assert len(before) == 2


def test_without_a_commit_nothing_begins_anew_by_itself(growing: PodGateway) -> None:
    with growing.kernel("default") as kernel:
        browser = kernel.open()
        cell = browser.begin("%%distributed -w 2:3 -e none --show all\nimport time\nprint('begun', RANK, flush=True)\ntime.sleep(600)")
        browser.wait(lambda m: "begun 1" in said(browser, cell), 60)
        kill(growing, pod_of(growing, 1))
        done = browser.finish(cell, 60)
        assert done.status == "error" and "rank 1" in done.evalue, done
        assert said(browser, cell).count("begun 1") == 1
        until(lambda: left(growing) == [])


def test_a_gateway_that_is_killed_in_the_middle_of_a_change_finishes_it_when_it_is_back(growing: PodGateway) -> None:
    with growing.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping("-w 1:2 -e none --name halfway --show 0", steps=200))
        works(browser, cell, 1, 2)
        scale(growing, "halfway", 2)
        until(lambda: len(jobs(growing)) == 2)
        growing.stop(signal.SIGKILL)
        browser.until_closed()
        growing.start()
        again = kernel.open()
        until(lambda: burst(growing, "halfway")["workers"] == 2, seconds=60)
        until(lambda: burst(growing, "halfway")["state"] == "ended", seconds=120)
        assert burst(growing, "halfway")["outcome"] == "ok"
        assert sizes(again, 200) == [1, 2]


@pytest.fixture
def with_gpus(
    cluster: Cluster, namespace: str, one_gpu: DevicePlugin, gateway_image: str, pod_machine: Machine
) -> Iterator[PodGateway]:  # fmt: skip
    """Three GPUs on one node."""
    one_gpu.offer(["GPU-0", "GPU-1", "GPU-2"])
    until(lambda: cluster.get("node", cluster.gpu_node)["status"]["allocatable"].get(gpu_resource(namespace)) == "3")
    gateway = PodGateway(pod_machine, cluster, namespace, f"Bursts.grow_after={GROW_AFTER}", more={"gpu": {"gpus": 1}})
    yield gateway
    gateway.end()


def test_idle_gpus_are_taken_and_given_back_to_a_kernel_that_waits(with_gpus: PodGateway) -> None:
    with with_gpus.kernel("gpu", KERNEL_USERNAME="ada") as kernel, with_gpus.kernel("gpu", KERNEL_USERNAME="bob") as other:
        browser, waits = kernel.open(), other.open()
        assert waits.run("%%gpu\nheld = 1").status == "ok"
        cell = browser.begin(stepping("-w 1:3 -g 1 -e none --name hungry --show 0", steps=400))
        works(browser, cell, 2)  # one is bob's
        picture = with_gpus.call("GET", "/api/gpu").json()
        assert [(each["user"], each["gpus"]) for each in picture["elsewhere"]] == [("ada", 2)]
        assert with_gpus.call("POST", f"/api/gpu/kernels/{other.id}/release").ok
        works(browser, cell, 3)
        assert waits.run("%%gpu\nprint(held)", 60).out == "1\n"
        works(browser, cell, 2)
        done = browser.finish(cell, 200)
        assert done.status == "ok", (done, with_gpus.log[-3000:])
        assert sizes(browser, 400)[:3] == [2, 3, 2]
        assert 1 not in sizes(browser, 400), "it gave no more than was waited for"
        assert "back for" in said(browser, cell)
        until(lambda: with_gpus.call("GET", "/api/gpu").json()["elsewhere"] == [])
