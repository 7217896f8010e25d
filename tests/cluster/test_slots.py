"""Each lease is a slot that the scheduler believes: what isn't leased is free for anybody in the cluster."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import Any

import pytest

from gateway.backends.kubernetes import names, reasons
from gateway.backends.kubernetes.manifests import SLOT_PATIENCE
from gateway.broker.foreigners import TAKES
from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.rig import PodGateway, foreign_pod
from tests.integration.machine import Machine, until
from tests.integration.serving import GPU, Browser

pytestmark = pytest.mark.usefixtures("one_gpu")


def phase(gateway: PodGateway, name: str) -> str:
    return str(gateway.cluster.get("pod", name, "-n", gateway.namespace)["status"].get("phase"))


def slots(gateway: PodGateway) -> list[dict[str, Any]]:
    """Those that are not on their way out."""
    return [pod for pod in gateway.pods(names.ROLE_SLOT) if not pod["metadata"].get("deletionTimestamp")]


def owner(slot: dict[str, Any]) -> str:
    return str(slot["metadata"]["labels"][names.KERNEL])


def started(browser: Browser, code: str) -> str:
    cell = browser.begin(code)
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
    return cell


def test_a_lease_is_a_bound_slot_on_the_kernels_node_and_goes_back_when_it_ends(pods: PodGateway) -> None:
    with pods.kernel("gpu", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        assert browser.run("1 + 1").status == "ok"
        assert slots(pods) == [], "a cell that needs no GPU takes none"
        done = browser.run(GPU + "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        assert done.status == "ok"
        [slot] = slots(pods)
        assert slot["spec"]["nodeName"] == pods.cluster.gpu_node
        assert slot["spec"]["containers"][0]["resources"]["requests"][pods.resource] == "1"
        assert owner(slot) == kernel.id
        assert slot["metadata"]["ownerReferences"][0]["name"] == names.kernel_pod(kernel.id)
        assert pods.gpu()["gpus"][0]["node"] == pods.cluster.gpu_node
        assert kernel.lease["gpus"] == [pods.gpu()["gpus"][0]["uuid"]]
        assert pods.call("POST", f"/api/gpu/kernels/{kernel.id}/release").ok
        until(lambda: slots(pods) == [])
        assert browser.run(GPU + "print('back')").out == "back\n"
    until(lambda: pods.pods(names.ROLE_SLOT) == [])


def test_a_lease_that_is_given_back_as_soon_as_it_is_there_holds_its_gpu_no_longer(pods: PodGateway) -> None:
    with pods.kernel("gpu") as kernel:
        browser = kernel.open()
        for _ in range(3):
            assert browser.run(GPU + "1").status == "ok"
            [slot] = slots(pods)
            until(lambda: reasons.running(pods.cluster.get("pod", slot["metadata"]["name"], "-n", pods.namespace)))  # noqa: B023
            assert pods.call("POST", f"/api/gpu/kernels/{kernel.id}/release").ok
            until(lambda: pods.pods(names.ROLE_SLOT) == [], seconds=SLOT_PATIENCE)  # not only once its whole grace is over


def test_a_slot_that_is_taken_from_its_kernel_frees_the_gpu_once_the_cell_is_over(pods: PodGateway) -> None:
    with pods.kernel("gpu") as kernel:
        browser = kernel.open()
        cell = started(browser, GPU + "import time; v = 1; print('on', flush=True); time.sleep(3)")
        [slot] = slots(pods)
        pods.cluster.kubectl("delete", "pod", slot["metadata"]["name"], "-n", pods.namespace, "--wait=false")
        assert browser.finish(cell).status == "ok"
        until(lambda: kernel.lease["phase"] == "PARKED" and pods.pods(names.ROLE_SLOT) == [])
        assert browser.run(GPU + "print(v)").out == "1\n"
        [other] = slots(pods)
        assert other["metadata"]["uid"] != slot["metadata"]["uid"]


def test_a_kernel_that_may_be_anywhere_starts_where_gpus_are(pods: PodGateway) -> None:
    with pods.kernel("anywhere") as one, pods.kernel("anywhere") as two, pods.kernel("anywhere") as three:
        for kernel in (one, two, three):
            assert kernel.open().run("1 + 1").status == "ok"
        assert {pod["spec"]["nodeName"] for pod in pods.pods(names.ROLE_KERNEL)} == {pods.cluster.gpu_node}


def test_two_kernels_share_one_gpu_by_handing_their_slot_over(pods: PodGateway) -> None:
    with pods.kernel("gpu", KERNEL_USERNAME="ada") as one, pods.kernel("gpu", KERNEL_USERNAME="bob") as two:
        browsers = {kernel.id: kernel.open() for kernel in (one, two)}
        assert browsers[one.id].run(GPU + "v = 1").status == "ok"
        uid = slots(pods)[0]["metadata"]["uid"]
        cell = started(browsers[one.id], GPU + "import time; print('on', flush=True); time.sleep(3)")
        waits = browsers[two.id].begin(GPU + "print('mine')")
        until(lambda: pods.gpu()["queue"])
        assert [owner(slot) for slot in slots(pods)] == [one.id]
        assert browsers[one.id].finish(cell).status == "ok"
        assert browsers[two.id].finish(waits).out == "mine\n"
        until(lambda: [owner(slot) for slot in slots(pods)] == [two.id])
        assert slots(pods)[0]["metadata"]["uid"] == uid, "handed over, not made anew"
        assert browsers[one.id].run(GPU + "print(v)").out == "1\n", "its state came back"
        owners = {each["name"] for each in slots(pods)[0]["metadata"]["ownerReferences"]}
        assert owners == {names.kernel_pod(one.id)}


def test_a_kernel_waits_for_a_gpu_that_a_foreign_pod_has_and_is_told_so(pods: PodGateway) -> None:
    with pods.kernel("gpu") as kernel:
        browser = kernel.open()
        assert browser.run(GPU + "1").status == "ok"
        pods.cluster.apply(foreign_pod(pods.namespace), namespace=pods.namespace)
        until(lambda: phase(pods, "foreign") == "Running")
        waits = browser.begin(GPU + "print('at last')")
        told = browser.wait(lambda m: m["parent"] == waits and "other pods" in json.dumps(m["content"]))
        assert told["type"] in ("display_data", "update_display_data")
        [slot] = slots(pods)
        assert "nodeName" not in slot["spec"], "it waits at the scheduler, so that it has the GPU as soon as that is free"
        pods.cluster.kubectl("delete", "pod", "foreign", "-n", pods.namespace, "--wait=false")
        assert browser.finish(waits).out == "at last\n"
        assert [each["metadata"]["uid"] for each in slots(pods)] == [slot["metadata"]["uid"]]


def test_a_foreign_pod_that_waits_gets_the_gpu_as_soon_as_its_kernel_is_idle(pods: PodGateway) -> None:
    with pods.kernel("gpu") as kernel:
        browser = kernel.open()
        browser.run(GPU + "v = 1")
        cell = started(browser, GPU + "import time; print('on', flush=True); time.sleep(4)")
        pods.cluster.apply(foreign_pod(pods.namespace), namespace=pods.namespace)
        until(lambda: any(entry["kernel_id"].endswith("/foreign") for entry in pods.gpu()["queue"]))
        assert kernel.lease["executing"], "a cell that runs is never cut short"
        assert browser.finish(cell).status == "ok"
        until(lambda: phase(pods, "foreign") == "Running")
        assert kernel.lease["phase"] == "PARKED"
        waits = browser.begin(GPU + "print(v)")
        pods.cluster.kubectl("delete", "pod", "foreign", "-n", pods.namespace, "--wait=false")
        assert browser.finish(waits).out == "1\n"


def test_an_interrupt_ends_the_wait_for_other_pods(pods: PodGateway) -> None:
    pods.cluster.apply(foreign_pod(pods.namespace), namespace=pods.namespace)
    until(lambda: phase(pods, "foreign") == "Running")
    with pods.kernel("gpu") as kernel:
        browser = kernel.open()
        browser.run("1")
        waits = browser.begin(GPU + "1")
        browser.wait(lambda m: m["parent"] == waits and "other pods" in json.dumps(m["content"]))
        kernel.call("POST", "/interrupt")
        assert browser.finish(waits).ename == "KeyboardInterrupt"
        until(lambda: slots(pods) == [])
        assert browser.run("print('goes on')").out == "goes on\n"


def test_a_gateway_that_is_killed_leaves_leases_and_slots_as_they_are(pods: PodGateway) -> None:
    kernel = pods.kernel("gpu")
    browser = kernel.open()
    browser.run(GPU + "v = 1")
    held, uid = kernel.lease["gpus"], slots(pods)[0]["metadata"]["uid"]
    other = pods.kernel("gpu")
    other.open().run("w = 2")
    pods.stop(signal.SIGKILL)
    pods.start()
    assert kernel.lease["gpus"] == held
    assert [slot["metadata"]["uid"] for slot in slots(pods)] == [uid]
    assert other.open().run(GPU + "print(w)").out == "2\n"
    assert kernel.open().run(GPU + "print(v)").out == "1\n"


def test_a_slot_that_a_killed_gateway_left_without_a_lease_is_ended(pods: PodGateway) -> None:
    kernel = pods.kernel("gpu")
    kernel.open().run(GPU + "v = 1")
    pods.stop(signal.SIGKILL)
    pods.cluster.kubectl("delete", "pod", names.kernel_pod(kernel.id), "-n", pods.namespace, "--grace-period=1")
    pods.start()
    until(lambda: pods.pods(names.ROLE_SLOT) == [])


def test_several_gpus_are_one_slot(one_gpu: DevicePlugin, pods: PodGateway) -> None:
    one_gpu.offer(["GPU-0", "GPU-1"])
    with pods.kernel("gpu", KERNEL_GPUS="2") as both, pods.kernel("gpu") as one:
        until(lambda: len(pods.gpu()["gpus"]) == 2)
        assert both.open().run(GPU + "v = 1").status == "ok"
        [slot] = slots(pods)
        assert slot["spec"]["containers"][0]["resources"]["requests"][pods.resource] == "2"
        assert one.open().run(GPU + "print('one')").out == "one\n"
        until(lambda: [owner(each) for each in slots(pods)] == [one.id])
        browser = both.open()
        assert browser.run(GPU + "print(v)").out == "1\n"
        assert "other pods" not in json.dumps([message["content"] for message in browser.messages]), "nobody else has any"


def test_a_pod_of_others_that_a_gpu_would_not_help_keeps_no_kernel_waiting(pods: PodGateway) -> None:
    huge = foreign_pod(pods.namespace, "huge")
    huge["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "900"}
    elsewhere = foreign_pod(pods.namespace, "elsewhere")
    other = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [pods.cluster.gpu_node]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [other]}]}
    elsewhere["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    with pods.kernel("gpu") as kernel:
        browser = kernel.open()
        assert browser.run(GPU + "v = 1").status == "ok"
        pods.cluster.apply(elsewhere, namespace=pods.namespace)
        until(lambda: "PodScheduled" in str(pods.cluster.get("pod", "elsewhere", "-n", pods.namespace)["status"].get("conditions")))
        assert browser.run("%%cpu\nimport time; time.sleep(2)").status == "ok"
        assert kernel.lease["phase"] == "HOLDING", "it may not be on this node"
        pods.cluster.apply(huge, namespace=pods.namespace)
        until(lambda: kernel.lease["phase"] == "PARKED")
        assert browser.finish(browser.begin(GPU + "print(v)"), seconds=TAKES + 60).out == "1\n", "nobody can take it, so it has it again"


def test_who_needs_two_gpus_of_which_others_have_one_gets_both_at_once_and_who_needs_one_has_the_other_meanwhile(
    one_gpu: DevicePlugin, pods: PodGateway
) -> None:
    one_gpu.offer(["GPU-0", "GPU-1"])
    until(lambda: len(pods.gpu()["gpus"]) == 2)
    pods.cluster.apply(foreign_pod(pods.namespace), namespace=pods.namespace)
    until(lambda: phase(pods, "foreign") == "Running")
    with pods.kernel("gpu", KERNEL_GPUS="2") as both, pods.kernel("gpu") as one:
        browser, other = both.open(), one.open()
        browser.run("1")
        other.run("1")
        waits = browser.begin(GPU + "print('both')")
        browser.wait(lambda m: m["parent"] == waits and "other pods" in json.dumps(m["content"]))
        [slot] = slots(pods)
        assert slot["spec"]["containers"][0]["resources"]["requests"][pods.resource] == "2" and "nodeName" not in slot["spec"]
        cell = started(other, GPU + "import time; print('on', flush=True); time.sleep(3)")
        pods.cluster.kubectl("delete", "pod", "foreign", "-n", pods.namespace, "--wait=false")
        until(lambda: both.lease["phase"] == "WAITING" and one.lease["executing"])
        assert other.finish(cell).status == "ok"
        assert browser.finish(waits).out == "both\n"
        until(lambda: [owner(each) for each in slots(pods)] == [both.id])


def test_a_kernel_is_on_the_devices_that_the_kubelet_gave_its_slot(
    one_gpu: DevicePlugin, cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine
) -> None:
    visible = GPU + "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    given = one_gpu.given
    one_gpu.offer(["GPU-a", "GPU-b", "GPU-c"])
    gateway = PodGateway(pod_machine, cluster, namespace, simulated=None)
    try:
        until(lambda: len(gateway.gpu()["gpus"]) == 3)
        with gateway.kernel("gpu", KERNEL_GPUS="2") as two, gateway.kernel("gpu") as one:
            assert set(two.open().run(visible).out.strip().split(",")) == set(given[0])
            assert [one.open().run(visible).out.strip()] == given[1]
            assert not set(given[0]) & set(given[1])
    finally:
        gateway.end()


def test_a_kernel_for_life_keeps_its_gpu_and_needs_no_slot(pods: PodGateway) -> None:
    with pods.kernel("life") as kernel:
        assert kernel.open().run(GPU + "print('held')").out == "held\n"
        assert slots(pods) == []
        [pod] = pods.pods(names.ROLE_KERNEL)
        assert pod["spec"]["containers"][0]["resources"]["limits"][pods.resource] == "1"


def test_at_every_moment_at_most_one_slot_is_bound_and_one_kernel_computes(pods: PodGateway) -> None:
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            bound = [pod for pod in pods.pods(names.ROLE_SLOT) if pod["spec"].get("nodeName") and pod["status"]["phase"] != "Succeeded"]
            holding = [lease for lease in pods.gpu()["leases"] if lease["executing"]]
            seen.append((len(bound), len(holding)))
            time.sleep(0.1)

    witness = threading.Thread(target=look)
    witness.start()
    try:
        with pods.kernel("gpu", KERNEL_USERNAME="ada") as one, pods.kernel("gpu", KERNEL_USERNAME="bob") as two:
            browsers = [one.open(), two.open()]
            for _ in range(6):
                cells = [browser.begin(GPU + "import time; time.sleep(.2); print('ran')") for browser in browsers]
                assert [browser.finish(cell).out for browser, cell in zip(browsers, cells, strict=True)] == ["ran\n", "ran\n"]
    finally:
        over.set()
        witness.join()
    assert len(seen) > 10
    assert max(bound for bound, _ in seen) == 1
    assert max(holding for _, holding in seen) <= 1
