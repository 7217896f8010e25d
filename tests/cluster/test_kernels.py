"""Each kernel is a pod of a real cluster: it works like any kernel, outlives its gateway, says why it can't start, and leaves nothing."""

from __future__ import annotations

import json
import signal
from base64 import b64decode

import pytest

from gateway.backends.kubernetes import names
from gateway.protocol import websocket as ws
from tests.cluster.cluster import Cluster
from tests.cluster.images import BASE, archives
from tests.cluster.rig import PodGateway
from tests.integration.machine import Machine, until


def test_a_kernel_is_a_pod_of_its_own_and_works_like_any_kernel(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada@example.org") as kernel:
        browser = kernel.open()
        assert browser.run("import os; print(os.getpid() > 1, os.getuid())").out == "True 1000\n"
        assert browser.run("1/0").ename == "ZeroDivisionError"
        assert browser.run("x = 6 * 7").status == "ok"
        assert browser.run("x").data[0]["text/plain"] == "42"
        assert "gateway" in browser.run("%gpu").out.lower() or browser.run("%gpu").status == "ok"
        [pod] = pods.pods(names.ROLE_KERNEL)
        assert pod["metadata"]["name"] == names.kernel_pod(kernel.id)
        assert browser.run("import socket; print(socket.gethostname())").out.strip() == pod["metadata"]["name"]
        assert pod["metadata"]["labels"][names.USER] == names.slug("ada@example.org")
    until(lambda: pods.pods(names.ROLE_KERNEL) == [] and pods.secrets() == [])


def test_no_secret_is_seen_in_the_pod_and_the_gateways_half_stays_out_of_it(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_PASSPHRASE="hush") as kernel:
        browser = kernel.open()
        assert browser.run("import os; print(os.environ['KERNEL_PASSPHRASE'])").out == "hush\n"
        [pod] = pods.pods(names.ROLE_KERNEL)
        secret = pods.cluster.get("secret", names.kernel_pod(kernel.id), "-n", pods.namespace)
        spec, owner = (json.loads(b64decode(secret["data"][key])) for key in ("spec.json", "owner.json"))
        shown = json.dumps(pod)
        assert not any(each in shown for each in ("hush", spec["key"], spec["curve_secretkey"], owner["secretkey"]))
        found = browser.run("import pathlib; print(*(p.name for p in pathlib.Path('/run/elastic/spec').iterdir()))").out
        assert "spec.json" in found
        assert "owner.json" not in found
        assert browser.run("open('/var/run/secrets/kubernetes.io/serviceaccount/token')").ename == "FileNotFoundError"
        assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]


def test_a_restart_is_a_new_process_in_the_same_pod(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        browser.run("x = 1; open('/tmp/kept', 'w').write('kept')")
        before = pods.pods(names.ROLE_KERNEL)[0]["metadata"]["uid"]
        assert kernel.call("POST", "/restart").status_code == 200
        assert browser.run("x").ename == "NameError"
        assert browser.run("print(open('/tmp/kept').read())").out == "kept\n"
        assert pods.pods(names.ROLE_KERNEL)[0]["metadata"]["uid"] == before


def test_an_interrupt_reaches_the_cell(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        browser.run("1")
        cell = browser.begin("import time; print('begun', flush=True); time.sleep(600)")
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")  # before it, ipykernel itself is what an interrupt hits
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell).ename == "KeyboardInterrupt"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_kernels_outlive_their_gateway_and_output_arrives_whole_and_once(pods: PodGateway, signum: int) -> None:
    kernel = pods.kernel("default", KERNEL_USERNAME="ada")
    kernel.open().run("v = 1")
    browser = kernel.open(protocol=ws.ELASTIC)
    cell = browser.begin("import time\nfor i in range(40): print(i, flush=True); time.sleep(.1)")
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
    pods.stop(signum)
    browser.until_closed()
    pods.start()
    after = max(m["n"] for m in browser.messages)
    back = kernel.open(protocol=ws.ELASTIC, session=browser.session, after=after)
    back.wait(lambda m: m["type"] == "execute_reply" and m["parent"] == cell)
    whole = [m for m in [*browser.messages, *back.messages] if m["parent"] == cell and m["type"] == "stream"]
    assert "".join(m["content"]["text"] for m in whole).split() == [str(i) for i in range(40)]
    assert back.run("print(v)").out == "1\n"
    assert kernel.call("POST", "/restart").status_code == 200
    assert back.run("print('again')").out == "again\n"


@pytest.mark.case("S04")
@pytest.mark.parametrize(
    ("name", "said"),
    [("no-image", "there-is-no-such-image"), ("huge", "Insufficient cpu")],
)
def test_why_a_kernel_can_not_start_is_told_in_seconds_in_the_notebook(pods: PodGateway, name: str, said: str) -> None:
    kernel = pods.kernel(name)
    browser = kernel.open()
    cell = browser.begin("1")
    told = browser.wait(lambda m: said in json.dumps(m["content"]), seconds=30)
    assert told["parent"] == cell
    if name == "no-image":
        assert browser.finish(cell).status == "error"
        until(lambda: pods.pods(names.ROLE_KERNEL) == [] and pods.secrets() == [])
    else:
        assert said in kernel.call("GET").json()["reason"]
        assert kernel.call("DELETE").status_code == 204
        until(lambda: pods.pods(names.ROLE_KERNEL) == [] and pods.secrets() == [])


def test_a_quota_that_is_used_up_is_told_in_the_clusters_words(pods: PodGateway) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    pods.cluster.apply(quota, namespace=pods.namespace)
    until(lambda: pods.cluster.get("quota", "few", "-n", pods.namespace).get("status", {}).get("hard"))
    with pods.kernel("default") as first:
        first.open().run("1")
        browser = pods.kernel("default").open()
        done = browser.run("1")
        assert done.status == "error"
        assert "exceeded quota" in done.evalue
        assert len(pods.secrets()) == 1


def test_a_kernel_that_needs_more_memory_than_its_pod_has_is_told_so(pods: PodGateway) -> None:
    with pods.kernel("small") as kernel:
        browser = kernel.open()
        browser.run("1")
        done = browser.run("b = bytearray(500 << 20); b[::4096] = b'x' * len(b[::4096])")
        assert done.status == "error"
        assert "memory" in done.evalue


@pytest.mark.case("K01")
@pytest.mark.parametrize("how", [["--grace-period=1"], ["--grace-period=0", "--force"]], ids=["asked", "forced"])
def test_a_pod_that_is_deleted_in_the_cluster_is_told_in_the_notebook(pods: PodGateway, how: list[str]) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        browser.run("1")
        cell = browser.begin("import time; time.sleep(600)")
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "execute_input")
        pods.cluster.kubectl("delete", "pod", names.kernel_pod(kernel.id), "-n", pods.namespace, "--wait=false", *how)
        done = browser.finish(cell)
        assert done.status == "error"
        assert "told to end" in done.evalue or "deleted in the cluster" in done.evalue
        until(lambda: kernel.state == "dead" and "deleted in the cluster" in kernel.call("GET").json()["reason"])
        assert kernel.call("POST", "/restart").status_code == 200
        assert browser.run("print('again')").out == "again\n"


def test_a_kernel_whose_image_lacks_what_it_needs_says_so_with_its_last_words(
    cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine
) -> None:
    cluster.import_image(archives()[BASE])  # Python, and no pyzmq
    gateway = PodGateway(pod_machine, cluster, namespace, more={"default": {"image": BASE}})
    try:
        done = gateway.kernel("default").open().run("1")
        assert done.status == "error"
        assert "exit code 1" in done.evalue and "No module named 'zmq'" in done.evalue
        until(lambda: gateway.pods(names.ROLE_KERNEL) == [] and gateway.secrets() == [])
    finally:
        gateway.end()


def test_a_pod_that_is_evicted_is_told_in_the_notebook_in_the_clusters_words(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        browser.run("1")
        cell = browser.begin("import time; time.sleep(600)")
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "execute_input")
        name = names.kernel_pod(kernel.id)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": pods.namespace}}
        address = f"/api/v1/namespaces/{pods.namespace}/pods/{name}/eviction"
        pods.cluster.kubectl("create", "--raw", address, "-f", "-", stdin=json.dumps(eviction))
        assert browser.finish(cell).status == "error"
        until(lambda: kernel.state == "dead" and "evict" in kernel.call("GET").json()["reason"])
        assert kernel.call("POST", "/restart").status_code == 200
        assert browser.run("print('again')").out == "again\n"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_kernel_whose_pod_waits_for_room_or_its_image_outlives_its_gateway(pods: PodGateway, signum: int) -> None:
    kernel = pods.kernel("huge")
    until(lambda: "Insufficient cpu" in kernel.call("GET").json().get("reason", ""))
    [before] = pods.pods(names.ROLE_KERNEL)
    pods.stop(signum)
    pods.start()
    assert kernel.state == "starting"
    browser = kernel.open()
    cell = browser.begin("print('at last')")
    browser.wait(lambda m: m["parent"] == cell and "Insufficient cpu" in json.dumps(m["content"]))
    room = {"resources": {"requests": {"cpu": "10m"}}}
    pods.cluster.kubectl(
        "patch", "pod", names.kernel_pod(kernel.id), "-n", pods.namespace, "--subresource=resize",
        "-p", json.dumps({"spec": {"containers": [{"name": "kernel", **room}]}}),
    )  # fmt: skip
    assert browser.finish(cell).out == "at last\n"
    assert [pod["metadata"]["uid"] for pod in pods.pods(names.ROLE_KERNEL)] == [before["metadata"]["uid"]]
    assert kernel.call("POST", "/restart").status_code == 200
    assert browser.run("print('again')").out == "again\n"


def test_what_a_killed_gateway_left_half_made_is_cleared_away_by_the_next(pods: PodGateway) -> None:
    pods.stop(signal.SIGKILL)
    orphan = {
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "kernel-of-nobody", "labels": names.labels("gateway", names.ROLE_KERNEL, "nobody", "nobody")},
    }  # fmt: skip
    pods.cluster.apply(orphan, namespace=pods.namespace)
    pods.start()
    until(lambda: pods.secrets() == [])
