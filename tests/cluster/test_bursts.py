"""``%%distributed`` where kernels are pods: its ranks are the pods of a Job, and what they make comes home."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster
from tests.cluster.rig import PodGateway
from tests.integration.machine import Machine, until


def distributed(body: str, words: str = "-w 2 -e none") -> str:
    return f"%%distributed {words}\n{body}"


def left(gateway: PodGateway) -> list[str]:
    """What there is of bursts in the cluster."""
    found: list[str] = []
    for kind in ("jobs", "pods", "secrets", "services", "networkpolicies"):
        items: list[dict[str, Any]] = gateway.cluster.get(kind, "-n", gateway.namespace, "-l", names.selector(role=names.ROLE_RANK))[
            "items"
        ]
        found += [f"{kind}/{each['metadata']['name']}" for each in items]
    return found


def test_a_cell_runs_in_two_pods_and_what_it_makes_comes_home(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run("base = 40\nhistory = [1]\nalias = history")
        cell = browser.run(
            distributed("import socket\nresult = base + WORLD_SIZE\nhistory.append(RANK)\nprint(socket.gethostname().split('-')[-2:][0])")
        )
        assert cell.status == "ok", (cell, pods.log)
        assert sorted(line.split()[0] for line in cell.out.splitlines()) == ["[0]", "[1]"]
        assert browser.run("print(result, alias)").out == "42 [1, 0]\n"
        until(lambda: left(pods) == [])


def test_a_program_has_a_cell_run_for_a_busy_kernel_and_its_result_comes_home(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada", KERNEL_MARK="here") as kernel:
        browser = kernel.open()
        busy = browser.begin("import pathlib, time\nwhile not pathlib.Path('/tmp/go').exists(): time.sleep(0.05)")
        until(lambda: kernel.state == "busy")
        asked = {"kernel_id": kernel.id, "code": "import os\nprint(os.environ['KERNEL_MARK'], RANK)\nmade = WORLD_SIZE", "name": "posted"}
        shown = pods.call("POST", "/api/bursts", json={**asked, "dry_run": True})
        assert "Job" in [each["kind"] for each in shown.json()["manifests"]], shown.text
        assert pods.call("GET", "/api/bursts").json()["bursts"] == []
        answer = pods.call("POST", "/api/bursts", json=asked)
        assert (answer.status_code, answer.json().get("user")) == (201, "ada"), answer.text
        until(lambda: pods.call("GET", "/api/bursts/posted").json()["state"] == "ended")
        events = pods.call("GET", "/api/bursts/posted/events").json()["events"]
        assert sorted(event["text"] for event in events if event["t"] == "out") == ["here 0\n", "here 1\n"], events
        kernel.call("POST", "/interrupt")
        browser.finish(busy)
        assert browser.run("%burst result posted\nprint(made)").out.splitlines()[-1] == "2"
        until(lambda: left(pods) == [])


def test_the_real_exception_of_one_rank_is_raised_and_the_others_are_ended(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        body = "import time\nprint('before', RANK, flush=True)\nif RANK == 1:\n    raise ValueError('boom')\ntime.sleep(600)"
        begun = browser.begin(distributed(body))
        cell = browser.finish(begun)
        assert (cell.status, cell.ename, cell.evalue) == ("error", "ValueError", "boom"), (cell, pods.log)
        assert sorted(cell.out.splitlines()) == ["[0] before 0", "[1] before 1"]
        error = next(m for m in browser.messages if m["type"] == "error" and m["parent"] == begun)
        assert "raise ValueError('boom')" in "\n".join(error["content"]["traceback"])
        assert browser.run(distributed("import os, time\nif RANK == 1: os._exit(3)\ntime.sleep(600)")).evalue.startswith(
            "The process of rank 1 ended with exit code 3"
        )
        until(lambda: left(pods) == [])


def test_the_stop_button_ends_the_job_and_a_restart_does_too(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        sleeping = distributed("import time\nprint('begun', RANK, flush=True)\ntime.sleep(600)")
        cell = browser.begin(sleeping)
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream" and "begun 1" in json.dumps(m["content"]))
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell).ename == "KeyboardInterrupt"
        until(lambda: left(pods) == [])
        early = browser.begin(sleeping)
        until(lambda: left(pods))
        kernel.call("POST", "/interrupt")
        assert browser.finish(early).ename == "KeyboardInterrupt"
        until(lambda: left(pods) == [])
        again = browser.begin(sleeping)
        browser.wait(lambda m: m["parent"] == again and m["type"] == "stream")
        assert kernel.call("POST", "/restart").status_code == 200
        until(lambda: left(pods) == [])
        assert browser.run("print('there')").out == "there\n"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_gateway_that_is_killed_or_ended_costs_nothing_of_what_ranks_print_or_make(pods: PodGateway, signum: int) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        body = "import time\nfor i in range(60): print(i, flush=True); time.sleep(.2)\nresult = 'made'"
        cell = browser.begin(distributed(body, "-w 2 -e none --show 1"))
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
        pods.stop(signum)
        browser.until_closed()
        pods.start()
        again = kernel.open()
        until(lambda: again.run("%burst ls").out.count("ok") == 1)
        shown = again.run("%burst logs burst-1 -r 1").out
        assert shown.split() == [str(i) for i in range(60)]
        assert again.run("print(result)").out == "made\n"
        until(lambda: left(pods) == [])


def test_a_detached_burst_outlives_its_kernel_and_another_kernel_gets_its_result(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        begun = browser.run(distributed("import time\ntime.sleep(8)\nresult = [RANK] * 3", "-w 2 -e none --detach --name far"))
        assert begun.status == "ok"
        until(lambda: len(pods.pods(names.ROLE_RANK)) == 2)
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        assert browser.run("%burst attach far").status == "ok"
        assert browser.run("%burst result far\nprint(result)").out.splitlines()[-1] == "[0, 0, 0]"
        assert "burst-" in browser.run("%burst yaml far").out
    with pods.kernel("default", KERNEL_USERNAME="bob") as kernel:
        assert "no burst" in kernel.open().run("%burst result far").err


def test_why_ranks_can_not_run_is_told_in_the_notebook_in_the_clusters_words(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        browser.run("1")
        hard = {"pods": "2"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
        pods.cluster.apply(quota, namespace=pods.namespace)
        until(lambda: pods.cluster.get("quota", "few", "-n", pods.namespace).get("status", {}).get("hard"))
        cell = browser.begin(distributed("print(RANK)"))
        browser.wait(lambda m: m["parent"] == cell and "exceeded quota" in json.dumps(m["content"]))
        pods.cluster.kubectl("delete", "quota", "few", "-n", pods.namespace)
        assert browser.finish(cell, 120).status == "ok"
        done = browser.run(distributed("b = bytearray(500 << 20); b[::4096] = b'x' * len(b[::4096])"))
        assert done.status == "error" and "more memory than there may be here (0.25 GiB)" in done.evalue, done
        until(lambda: left(pods) == [])


def test_a_volume_that_ranks_can_not_have_is_told_and_so_is_a_job_that_was_deleted_meanwhile(
    cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine
) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}
    cluster.apply(config, namespace=namespace)
    volume = {"name": "settings", "mount_path": "/settings", "configMap": {"name": "settings"}}
    gateway = PodGateway(pod_machine, cluster, namespace, more={"default": {"volumes": [volume]}})
    try:
        with gateway.kernel("default") as kernel:
            browser = kernel.open()
            browser.run("1", 120)
            cluster.kubectl("delete", "configmap", "settings", "-n", namespace)
            cell = browser.begin(distributed("print(RANK)"))
            browser.wait(
                lambda m: m["parent"] == cell and 'configmap "settings" not found' in json.dumps(m["content"]).replace("\\", ""), 90
            )
            cluster.kubectl("delete", "jobs", "--all", "-n", namespace, "--wait=false")
            assert browser.finish(cell).evalue == "Its Job was deleted in the cluster."
            until(lambda: left(gateway) == [])
    finally:
        gateway.end()


@pytest.mark.usefixtures("one_gpu")
def test_a_rank_gets_the_gpu_that_its_own_kernel_has_and_does_not_use(pods: PodGateway) -> None:
    with pods.kernel("gpu", KERNEL_GPUS="1") as kernel:
        browser = kernel.open()
        assert browser.run("%%gpu\nprint('on it')").out == "on it\n"
        assert kernel.lease["phase"] == "HOLDING"
        cell = browser.run(distributed("print('ran')", "-w 1 -g 1 -e none"), 120)
        assert (cell.status, cell.out) == ("ok", "ran\n"), (cell, pods.log)
        assert kernel.lease["phase"] == "PARKED"
        until(lambda: left(pods) == [])
        assert browser.run("%%gpu\nprint('again')").out == "again\n"


def test_what_pods_can_not_do_is_refused_before_anything_starts(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        for words, told in (("-w 2:3 -e mpi", "keep their number"), ("-w 2 -g 1 -e none", "have no GPUs")):
            assert told in browser.run(distributed("print(1)", words)).err
        shown = browser.run(distributed("print(1)", "-w 3 -e none --dry-run")).out
        assert '"completions": 3' in shown and "NetworkPolicy" in shown
        assert left(pods) == []


def test_a_rank_whose_pod_is_taken_away_ends_the_cell_and_is_named(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        cell = browser.begin(distributed("import time\nprint('begun', RANK, flush=True)\ntime.sleep(600)"))
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream" and "begun 1" in json.dumps(m["content"]))
        ranks = pods.pods(names.ROLE_RANK)
        [second] = [
            pod["metadata"]["name"] for pod in ranks if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
        ]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": second, "namespace": pods.namespace}}
        address = f"/api/v1/namespaces/{pods.namespace}/pods/{second}/eviction"
        pods.cluster.kubectl("create", "--raw", address, "-f", "-", stdin=json.dumps(eviction))
        done = browser.finish(cell)
        assert done.status == "error" and "ank 1" in done.evalue, done
        until(lambda: left(pods) == [])


def test_a_job_in_a_queue_is_let_go_by_whoever_keeps_the_queue(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        cell = browser.begin(distributed("print('ran', RANK)", "-w 2 -e none --queue research"))
        browser.wait(lambda m: m["parent"] == cell and "waits in the queue research" in json.dumps(m["content"]))
        [job] = pods.cluster.get("jobs", "-n", pods.namespace)["items"]
        assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research" and job["spec"]["suspend"]
        assert pods.pods(names.ROLE_RANK) == []
        pods.cluster.kubectl("patch", "job", job["metadata"]["name"], "-n", pods.namespace, "-p", json.dumps({"spec": {"suspend": False}}))
        assert browser.finish(cell).out.count("ran") == 2
