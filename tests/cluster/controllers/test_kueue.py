"""A burst in a queue of the real Kueue: what its cell is told, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.controllers.conftest import left
from tests.cluster.images import KERNEL
from tests.cluster.rig import PodGateway
from tests.cluster.test_bursts import distributed
from tests.cluster.test_bursts_elastic import said, scale, sizes, stepping, works
from tests.integration.machine import until

pytestmark = [pytest.mark.controllers, pytest.mark.timeout(500)]
QUEUED = "-w 2 -e none --queue research"
ELASTIC = "-e none --queue research --show 0"
URGENT = "Preempted to accommodate a workload"
SLEEPING = "import time\nprint('begun', RANK, flush=True)\ntime.sleep(600)"


def kueue_object(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def queue(cluster: Cluster, namespace: str, kueue: None) -> Iterator[str]:
    """Its queue ``research`` has room for two of our ranks, and no more."""
    quotas = [{"name": "cpu", "nominalQuota": "25m"}, {"name": "memory", "nominalQuota": "4Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": namespace, "resources": quotas}]}]
    cluster.apply(
        kueue_object("ResourceFlavor", namespace),
        kueue_object("ClusterQueue", namespace, namespaceSelector={}, resourceGroups=groups,
                     preemption={"withinClusterQueue": "LowerPriority"}),
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "WorkloadPriorityClass", "metadata": {"name": namespace}, "value": 1000},
    )  # fmt: skip
    cluster.apply(kueue_object("LocalQueue", "research", clusterQueue=namespace), namespace=namespace)
    yield namespace
    cluster.kubectl("delete", "localqueue", "research", "-n", namespace, "--wait=false")
    cluster.kubectl("delete", "clusterqueue,resourceflavor,workloadpriorityclass", namespace, "--wait=false")


def other_job(name: str, cpu: str, **labels: str) -> dict[str, Any]:
    """Of somebody else, in the same queue."""
    container = {"name": "main", "image": KERNEL, "imagePullPolicy": "Never", "command": ["sleep", "600"],
                 "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}  # fmt: skip
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "research", **labels}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": True, "template": template}}


def told(browser: Any, cell: str, text: str) -> None:
    browser.wait(lambda m: m["parent"] == cell and text in json.dumps(m["content"]))


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_an_admitted_cell_runs_and_brings_its_results_home(others: PodGateway, queue: str, kind: str) -> None:
    with others.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.run(distributed("print('ran', RANK)\nresult = WORLD_SIZE * 21", f"{QUEUED} -l {kind}"), 120)
        assert (cell.status, cell.out.count("ran")) == ("ok", 2), (cell, others.log)
        assert browser.run("print(result)").out == "42\n"
        until(lambda: left(others) == [])


def test_one_that_can_never_fit_or_names_no_queue_is_told_so_and_leaves_nothing_when_it_is_stopped(others: PodGateway, queue: str) -> None:
    with others.kernel("default") as kernel:
        browser = kernel.open()
        cell = browser.begin(distributed(SLEEPING, QUEUED.replace("-w 2", "-w 3")))
        told(browser, cell, "maximum capacity")
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell).ename == "KeyboardInterrupt"
        until(lambda: left(others) == [])
        cell = browser.begin(distributed(SLEEPING, QUEUED.replace("research", "nope")))
        told(browser, cell, "LocalQueue nope doesn't exist")
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell).ename == "KeyboardInterrupt"
        until(lambda: left(others) == [])


def test_one_that_waits_for_others_says_what_is_missing_and_runs_once_they_are_through(others: PodGateway, queue: str) -> None:
    others.cluster.apply(other_job("first", "20m"), namespace=others.namespace)
    until(lambda: others.cluster.get("job", "first", "-n", others.namespace)["status"].get("active"))
    with others.kernel("default") as kernel:
        browser = kernel.open()
        cell = browser.begin(distributed("print('ran', RANK)", QUEUED))
        told(browser, cell, "insufficient unused quota for cpu")
        others.cluster.kubectl("delete", "job", "first", "-n", others.namespace)
        done = browser.finish(cell, 120)
        assert (done.status, done.out.count("ran")) == ("ok", 2), (done, others.log)
        until(lambda: left(others) == [])


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_one_that_is_preempted_ends_in_kueues_words_and_is_not_begun_again(others: PodGateway, queue: str, kind: str) -> None:
    with others.kernel("default") as kernel:
        browser = kernel.open()
        cell = browser.begin(distributed(SLEEPING, f"{QUEUED} -l {kind}"))
        told(browser, cell, "begun 1")
        urgent = {"kueue.x-k8s.io/priority-class": queue}
        others.cluster.apply(other_job("urgent", "20m", **urgent), namespace=others.namespace)
        done = browser.finish(cell, 120)
        assert done.status == "error" and "Preempted to accommodate a workload" in done.evalue, (done, others.log)
        others.cluster.kubectl("delete", "job", "urgent", "-n", others.namespace)
        until(lambda: left(others) == [])
        again = browser.run(distributed("print('ran', RANK)", f"{QUEUED} -l {kind}"), 120)
        assert again.out.count("ran") == 2, again


def test_workers_more_come_as_their_queue_has_room_and_the_others_stay_in_it(others: PodGateway, queue: str) -> None:
    with others.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping(f"-w 1:3 {ELASTIC} --name growing", steps=350))
        works(browser, cell, 1)
        scale(others, "growing", 3)
        works(browser, cell, 2, 4)
        told(browser, cell, "A worker more waits in the queue research.")
        assert said(browser, cell).count("insufficient unused quota for cpu") == 1, "it is told once"
        jobs = others.cluster.get("jobs", "-n", others.namespace)["items"]
        assert sorted(job["spec"]["suspend"] for job in jobs) == [False, False, True]
        more = [{"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "value": "35m"}]
        others.cluster.kubectl("patch", "clusterqueue", queue, "--type=json", "-p", json.dumps(more))
        works(browser, cell, 3)
        done = browser.finish(cell, 200)
        assert done.status == "ok", (done, others.log[-3000:])
        assert sizes(browser, 350) == [1, 2, 3]
        until(lambda: left(others) == [])


def test_a_worker_more_that_kueue_preempts_leaves_at_a_commit_and_the_others_go_on(others: PodGateway, queue: str) -> None:
    with others.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping(f"-w 1:2 {ELASTIC} --name yielding", steps=250))
        works(browser, cell, 1)
        scale(others, "yielding", 2)
        works(browser, cell, 2)
        urgent = {"kueue.x-k8s.io/priority-class": queue}
        others.cluster.apply(other_job("urgent", "10m", **urgent), namespace=others.namespace)
        works(browser, cell, 1)
        until(lambda: others.cluster.get("job", "urgent", "-n", others.namespace)["status"].get("active"))
        done = browser.finish(cell, 200)
        assert done.status == "ok", (done, others.log[-3000:])
        assert sizes(browser, 250) == [1, 2, 1]
        assert f"Kueue takes a worker back: {URGENT}" in said(browser, cell)
        assert "Other workers go on from" not in said(browser, cell), "nothing was lost"


def test_one_whose_least_kueue_preempts_waits_in_its_queue_and_goes_on_where_it_was(others: PodGateway, queue: str) -> None:
    with others.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping(f"-w 2:3 {ELASTIC} --name waiting", steps=150))
        works(browser, cell, 2)
        urgent = {"kueue.x-k8s.io/priority-class": queue}
        others.cluster.apply(other_job("urgent", "20m", **urgent), namespace=others.namespace)
        told(browser, cell, f"waits in the queue research. {URGENT}")
        others.cluster.kubectl("delete", "job", "urgent", "-n", others.namespace)
        works(browser, cell, 2)
        done = browser.finish(cell, 200)
        assert done.status == "ok", (done, others.log[-3000:])
        assert sizes(browser) == [2]
        assert "Other workers go on from" not in said(browser, cell), "nothing was lost"


def test_an_elastic_one_without_a_commit_ends_in_kueues_words(others: PodGateway, queue: str) -> None:
    with others.kernel("default") as kernel:
        browser = kernel.open()
        cell = browser.begin(distributed(SLEEPING, "-w 2:3 -e none --queue research --show all"))
        told(browser, cell, "begun 1")
        urgent = {"kueue.x-k8s.io/priority-class": queue}
        others.cluster.apply(other_job("urgent", "20m", **urgent), namespace=others.namespace)
        done = browser.finish(cell, 120)
        assert done.status == "error" and f"Kueue took its pods away: {URGENT}" in done.evalue, (done, others.log)
        assert said(browser, cell).count("begun 1") == 1
