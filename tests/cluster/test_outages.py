"""The API server, or a node, is gone for a while: what runs goes on, and everything resumes."""

from __future__ import annotations

import threading
import time

import pytest

from gateway.backends.kubernetes import names
from tests import budget
from tests.cluster.cluster import OwnCluster
from tests.cluster.rig import PodGateway
from tests.integration.machine import REPOSITORY, until
from tests.integration.serving import GPU, free_port

OUTAGE = 60.0  # seconds that the API server is away, for once in full


def test_without_the_api_server_cells_go_on_and_afterwards_all_does(broken_cluster: OwnCluster, one_gpu: None, pods: PodGateway) -> None:
    kernel = pods.kernel("gpu")
    browser = kernel.open()
    browser.run(GPU + "v = 1")
    cell = browser.begin(GPU + "import time\nfor i in range(60): print(i, flush=True); time.sleep(.1)")
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
    broken_cluster.stop_api()
    done = browser.finish(cell)
    assert done.out.split() == [str(i) for i in range(60)]
    assert browser.run(GPU + "print(v)").out == "1\n", "its lease is as it was"
    late = pods.kernel("default")
    waits = late.open()
    refused = waits.run("1")
    assert refused.status == "error"
    assert "Kubernetes" in refused.evalue or "cluster" in refused.evalue
    broken_cluster.start_api()
    until(lambda: pods.kernel("default").open().run("print('again')").out == "again\n")
    assert pods.call("POST", f"/api/gpu/kernels/{kernel.id}/release").ok
    assert browser.run(GPU + "print(v)").out == "1\n"


def test_a_minute_without_the_api_server_costs_no_kernel_no_cell_and_no_wait(
    broken_cluster: OwnCluster, one_gpu: None, pods: PodGateway
) -> None:  # fmt: skip
    """Longer than the cluster takes to give nodes up that it doesn't hear of, and than any time limit of one request."""
    holder, waiter = pods.kernel("gpu", KERNEL_USERNAME="ada"), pods.kernel("gpu", KERNEL_USERNAME="bob")
    idle, ends = pods.kernel("default"), pods.kernel("default")
    first, second, third, fourth = (kernel.open() for kernel in (holder, waiter, idle, ends))
    for number, browser in enumerate((first, second, third, fourth)):
        browser.run(f"v = {number}")
    cell = first.begin(GPU + "import time\nfor i in range(30): print(i, flush=True); time.sleep(1)")
    first.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
    waits = second.begin(GPU + "print('mine', v)")
    until(lambda: waiter.lease["phase"] == "WAITING")
    broken_cluster.stop_api()
    back = time.monotonic() + OUTAGE

    # 1. while it is away: what runs goes on, what needs the cluster says so, and nothing waits in silence for its end
    assert third.run("print(v)").out == "2\n"
    late = pods.kernel("default")
    refused = late.open().run("1")
    assert refused.status == "error" and "Kubernetes API server" in refused.evalue, refused
    stopped = ends.call("DELETE")
    assert stopped.status_code == 503 and "Kubernetes API server" in stopped.json()["message"], stopped.text
    assert first.finish(cell).out.split() == [str(i) for i in range(30)]
    assert first.run("%%cpu\nprint(v)").out == "0\n"
    assert third.run("print(v)").out == "2\n"
    time.sleep(max(0.0, back - time.monotonic()))

    # 2. afterwards: whoever waited gets it, and all else works again
    broken_cluster.start_api()
    assert second.finish(waits, seconds=120).out == "mine 1\n"
    assert first.run(GPU + "print(v)").out == "0\n"
    assert ends.call("GET").status_code == 404
    assert late.call("DELETE").status_code == 204
    until(lambda: pods.kernel("default").open().run("print('up')").out == "up\n")

    # 3. nothing is left over, and nothing is held by two
    def listed() -> set[str]:
        return {names.kernel_pod(model["id"]) for model in pods.call("GET", "/api/kernels").json()}

    until(lambda: {pod["metadata"]["name"] for pod in pods.pods(names.ROLE_KERNEL)} == set(pods.secrets()) == listed())
    assert len(listed()) == 4  # not the one that was to end, nor the one that could not start
    held = [unit for lease in pods.gpu()["leases"] for unit in lease["gpus"]]
    assert len(held) == len(pods.pods(names.ROLE_SLOT)) == 1


# which of its writes: a kernel's Secret, its pod, and that the Secret goes with the pod
ALWAYS = [(3, 1, "done"), (4, 3, "lost")]
AWAY = [(first, count, how) for first, count in ((3, 1), (4, 1), (5, 1), (3, 3), (4, 3)) for how in ("done", "lost")]


@pytest.mark.parametrize(("first", "count", "how"), budget.cases(AWAY, ALWAYS))
def test_a_start_during_which_the_api_server_goes_away_leaves_nothing_and_does_not_come_back(
    pods: PodGateway, first: int, count: int, how: str
) -> None:
    pods.stop()
    pods.program = (str(REPOSITORY / "tests/cluster/unanswered.py"), str(first), str(count), how)
    pods.start()
    kernel = pods.kernel("default")
    done = kernel.open().run("print('up')")
    assert done.out == "up\n" or "Kubernetes API server" in done.evalue, done
    if first == 5:
        assert done.out == "up\n", "its pod is there, and the rest can wait"
    else:  # whoever was told so tries again
        until(lambda: kernel.call("POST", "/restart").ok and kernel.open().run("print('up')").out == "up\n")
    assert kernel.call("DELETE").status_code == 204
    until(lambda: pods.pods(names.ROLE_KERNEL) == [] and pods.secrets() == [])
    pods.program = PodGateway.program
    pods.stop()
    pods.start()
    assert pods.call("GET", "/api/kernels").json() == []


def test_a_gateway_whose_count_of_lives_somebody_has_deleted_is_obeyed_all_the_same(pods: PodGateway) -> None:
    kernel = pods.kernel("default")
    kernel.open().run("v = 1")
    pods.stop()
    pods.cluster.kubectl("delete", "leases", "--all", "-n", pods.namespace)
    pods.start()
    assert kernel.open().run("print(v)").out == "1\n"


def test_a_lost_node_is_told_in_the_notebook_and_a_restart_gives_a_pod_on_another(broken_cluster: OwnCluster, pods: PodGateway) -> None:
    broken_cluster.kubectl("cordon", "node-1")
    try:
        kernel = pods.kernel("default")
        browser = kernel.open()
        browser.run("v = 1")
    finally:
        broken_cluster.kubectl("uncordon", "node-1")
    cell = browser.begin("import time; time.sleep(600)")
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "execute_input")
    broken_cluster.node(2).kill()
    told = "node-2 does not answer (Kubelet stopped posting node status)"  # before the cluster has noticed, only that the pod is silent
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream" and told in m["content"]["text"], seconds=120)
    done = browser.finish(cell, seconds=120)
    assert done.status == "error"
    assert "the cluster has given its pod up (Taint manager" in done.evalue
    assert kernel.state == "dead"
    assert kernel.call("POST", "/restart").status_code == 200
    assert browser.run("print('again')").out == "again\n"
    assert {"node-1", "node-2"} == {pod["spec"]["nodeName"] for pod in pods.pods(names.ROLE_KERNEL)}
    broken_cluster.node(2).start()
    until(lambda: [pod["spec"]["nodeName"] for pod in pods.pods(names.ROLE_KERNEL)] == ["node-1"])
    assert browser.run("print('goes on')").out == "goes on\n"


def test_of_two_gateways_of_one_name_the_newer_has_the_say_and_the_older_does_no_harm(one_gpu: None, pods: PodGateway) -> None:
    one, two = pods.kernel("gpu", KERNEL_USERNAME="ada"), pods.kernel("gpu", KERNEL_USERNAME="bob")
    first = one.open()
    first.run(GPU + "v = 1")
    two.open().run("w = 2")
    older, url = pods.process, pods.url
    [slot] = pods.pods(names.ROLE_SLOT)
    try:
        pods.port = free_port()
        pods.url = f"http://127.0.0.1:{pods.port}"
        pods.settings = (*pods.settings, f"LocalBackend.runtime_dir={pods.machine.root / 'second'}")
        pods.start()
        assert one.lease["phase"] == "HOLDING"

        # 1. a cell that comes through the older one is run, and its wait ended by the newer one
        newer, pods.url = pods.url, url
        late = two.open()
        pods.url = newer
        assert late.run(GPU + "print(w)").out == "2\n"
        assert one.lease["phase"] == "PARKED"

        # 2. what the older one is told to do is refused, and its slots are left alone
        pods.url = url
        refused = pods.call("POST", f"/api/gpu/kernels/{two.id}/release")
        pods.url = newer
        assert not refused.ok or two.lease["phase"] in ("HOLDING", "PARKED")
        assert first.closed is None and one.open().run(GPU + "print(v)").out == "1\n"
        assert len({unit for lease in pods.gpu()["leases"] for unit in lease["gpus"]}) == 1
        assert [each["metadata"]["uid"] for each in pods.pods(names.ROLE_SLOT)] == [slot["metadata"]["uid"]], "handed over, not made anew"
    finally:
        older.kill()
        older.wait()


def test_many_starts_at_once_all_come_up(pods: PodGateway) -> None:
    kernels = [pods.kernel("default") for _ in range(6)]
    results: list[str] = []
    threads = [threading.Thread(target=lambda k=kernel: results.append(k.open().run("print('up')").out)) for kernel in kernels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["up\n"] * 6
