"""Installed by Helm, the gateway serves kernels through its Service, has few rights, and loses no kernel by an upgrade or rollback."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from gateway.backends.kubernetes import names
from gateway.protocol import websocket as ws
from tests.cluster.cluster import Cluster, CommandFailed
from tests.cluster.reach import World
from tests.cluster.release import SMALL, Release
from tests.cluster.rig import foreign_pod
from tests.integration.machine import PATIENCE, Machine, until
from tests.integration.serving import Browser, Gateway, Kernel, free_port


def test_an_upgrade_and_a_rollback_lose_no_kernel(release: Release) -> None:
    with release.kernel("elastic", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        assert browser.run("x = 6 * 7; print(x)").out == "42\n"
        first = release.pod()
        assert release.call("PATCH", "/api/gpu/policy", json={"queue_timeout": 77}).ok
        for change in (lambda: release.upgrade(leases={"idle_timeout": 30, "max_hold": "none"}), lambda: release.rollback(1)):
            before = release.pod()["metadata"]["name"]
            change()
            until(lambda: release.pod()["metadata"]["name"] != before)  # noqa: B023 - called at once
            until(release.answers)
            assert [each["id"] for each in release.call("GET", "/api/kernels").json()] == [kernel.id]
            browser.close()
            browser = kernel.open()
            assert browser.run("print(x)").out == "42\n"
            rules = release.call("GET", "/api/gpu/policy").json()
            assert (rules["queue_timeout"], rules["unkept"]) == (77.0, "")
        assert release.pod()["spec"]["containers"][0]["image"] == first["spec"]["containers"][0]["image"]
        assert release.call("GET", "/api/kernels", headers={}).status_code == 403
        assert release.call("GET", "/api/kernels").ok, "the token is still the first"
    until(lambda: release.pods(names.ROLE_KERNEL) == [])


@pytest.mark.usefixtures("one_gpu")
def test_a_rollout_loses_nothing_of_a_cell_that_runs_meanwhile_and_its_slot_stays(release: Release) -> None:
    with release.kernel("gpu") as kernel:
        kernel.open().run("1")
        browser = kernel.open(protocol=ws.ELASTIC)
        cell = browser.begin("%%gpu\nimport time\nfor i in range(100): print(i, flush=True); time.sleep(.2)")
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
        [slot] = release.pods(names.ROLE_SLOT)
        release.upgrade(leases={"idle_timeout": 44})
        browser.until_closed()
        until(release.answers)
        back = kernel.open(protocol=ws.ELASTIC, session=browser.session, after=max(m["n"] for m in browser.messages))
        back.wait(lambda m: m["type"] == "execute_reply" and m["parent"] == cell)
        whole = [m for m in [*browser.messages, *back.messages] if m["parent"] == cell and m["type"] == "stream"]
        assert "".join(m["content"]["text"] for m in whole).split() == [str(i) for i in range(100)]
        assert [each["metadata"]["uid"] for each in release.pods(names.ROLE_SLOT)] == [slot["metadata"]["uid"]]


def test_warm_kernels_are_claimed_and_those_that_wait_outlive_a_rollout(release: Release) -> None:
    def waiting() -> list[str]:
        ready = 'elastic_warm_kernels{profile="default"} 1.0' in release.call("GET", "/metrics").text
        there = [pod for pod in release.pods(names.ROLE_KERNEL) if names.WARM in pod["metadata"]["labels"]]
        return [pod["metadata"]["name"] for pod in there if ready and len(there) == 1]

    warm = {"profiles": {"default": {**SMALL, "warm": 1}}, "kernelspecs": {"elastic": {"displayName": "Elastic"}, "elastic-python": None}}
    release.upgrade(**warm)
    [pod] = until(waiting)
    with release.kernel("elastic", KERNEL_USERNAME="ada") as kernel:
        assert kernel.open().run("import socket; v = 1; print(socket.gethostname())").out.strip() == pod
        [next_one] = until(lambda: [each for each in waiting() if each != pod])
        release.upgrade(**warm, leases={"idle_timeout": 55})
        until(release.answers)
        assert kernel.open().run("print(v)").out == "1\n"
        until(lambda: waiting() == [next_one])
    with release.kernel("elastic") as kernel:
        assert kernel.open().run("import socket; print(socket.gethostname())").out.strip() == next_one
    release.upgrade()
    until(lambda: release.pods(names.ROLE_KERNEL) == [])


def test_a_kernel_outlives_even_the_release(release: Release) -> None:
    kernel = release.kernel("elastic")
    kernel.open().run("x = 6 * 7")
    release.cluster.helm("uninstall", "elastic-gateway", "-n", release.namespace, "--wait", "--timeout", "60s")
    with kernel:
        release.upgrade()
        release.connect()
        assert kernel.open().run("print(x)").out == "42\n"


def test_a_setting_reaches_the_gateway_and_no_secret_stands_in_its_pod(release: Release) -> None:
    release.upgrade(leases={"idle_timeout": 77})
    until(release.answers)
    assert release.call("GET", "/api/gpu/policy").json()["idle_timeout"] == 77
    assert release.token not in str(release.pod())
    assert set(release.call("GET", "/api/kernelspecs").json()["kernelspecs"]) == {"elastic", "gpu"}


LEASE = "leases.coordination.k8s.io"
MAY = [
    *(f"{verb} pods" for verb in ("create", "list", "watch", "patch", "delete")),
    *(f"{verb} secrets" for verb in ("create", "get", "list", "patch", "delete")),
    f"create {LEASE}", f"get {LEASE}/elastic-gateway-elastic-gateway", f"patch {LEASE}/elastic-gateway-elastic-gateway",
    *(f"{verb} jobs.batch" for verb in ("create", "get", "list", "patch", "delete")),
    "create services", "create networkpolicies.networking.k8s.io", "list events",
    "get pods --subresource=log", "list nodes", "watch nodes", "list pods --all-namespaces", "watch pods --all-namespaces",
]  # fmt: skip
MAY_NOT = [
    *(f"create pods --subresource={part}" for part in ("exec", "attach", "portforward", "ephemeralcontainers", "eviction")),
    "update pods", "watch secrets", "update secrets", f"patch {LEASE}/others", "create serviceaccounts --subresource=token",
    "create rolebindings", "list configmaps", "list services", "delete services", "delete networkpolicies.networking.k8s.io",
    "create cronjobs.batch", "patch nodes", "get nodes --subresource=proxy",
]  # fmt: skip

NOT_ELSEWHERE = ["create jobs.batch", "create services",
                 "create pods", "delete pods", "patch pods", "list secrets", "get secrets", f"create {LEASE}",
                 "get pods --subresource=log"]  # fmt: skip


def test_it_may_do_what_it_needs_and_no_more(release: Release, cluster: Cluster) -> None:
    who = f"system:serviceaccount:{release.namespace}:elastic-gateway"

    def may(what: str, namespace: str) -> bool:
        try:
            return (
                cluster.kubectl(
                    "auth", "can-i", *what.split(), "--as", who, *([] if "--all-namespaces" in what else ["-n", namespace])
                ).strip()
                == "yes"
            )
        except CommandFailed:  # how it says no
            return False

    assert [what for what in MAY if not may(what, release.kernels)] == []
    assert [what for what in MAY_NOT if may(what, release.kernels)] == []
    for elsewhere in (release.namespace, "default", "kube-system"):
        assert [what for what in NOT_ELSEWHERE if may(what, elsewhere)] == []


@pytest.mark.usefixtures("one_gpu")
def test_a_cell_gets_a_gpu_by_a_slot_and_a_pod_of_others_that_waits_gets_it_after_the_cell(release: Release) -> None:
    with release.kernel("gpu") as kernel:
        browser = kernel.open()
        done = browser.run("%%gpu\nprint('on it')")
        assert done.out == "on it\n", (done, release.log)
        [slot] = release.pods(names.ROLE_SLOT)
        assert slot["spec"]["nodeName"] == release.cluster.gpu_node
        assert slot["spec"]["containers"][0]["resources"]["limits"][release.resource] == "1"
        foreign = f"foreign-{release.namespace}"
        release.cluster.apply(foreign_pod(release.namespace, foreign))
        try:
            release.cluster.kubectl("wait", f"pod/{foreign}", "--for=condition=Ready", "--timeout=60s")
        finally:
            release.cluster.kubectl("delete", "pod", foreign, "--wait=false")
    until(lambda: release.pods(names.ROLE_KERNEL) == [] and release.pods(names.ROLE_SLOT) == [])


@pytest.mark.usefixtures("one_gpu")
def test_by_its_network_policies_kernels_are_reached_by_their_gateway_alone_and_slots_by_nobody(release: Release) -> None:
    """What the policies that the API server has say of the pods that are there; the tests' own network doesn't enforce them."""
    neighbour = {"metadata": {"name": "neighbour", "namespace": release.namespace, "labels": {}}, "spec": {"containers": []}}
    with release.kernel("gpu") as one, release.kernel("elastic") as two:
        one.open().run("%%gpu\n1")
        two.open().run("1")
        [slot] = release.pods(names.ROLE_SLOT)
        kernels, gateway = release.pods(names.ROLE_KERNEL), release.pod()
    world = World(
        release.cluster.get("networkpolicies", "--all-namespaces")["items"],
        {each["metadata"]["name"]: each["metadata"]["labels"] for each in release.cluster.get("namespaces")["items"]},
    )
    pods = [gateway, neighbour, slot, *kernels]
    for port in (5554, 5555, 5559):
        for kernel in kernels:
            assert [pod for pod in pods if world.may_reach(pod, kernel, port)] == [gateway]
    assert not any(world.may_reach(pod, target, port) for pod in pods for target in (*kernels, slot) for port in (22, 5553, 5560, 8888))
    assert not any(world.may_reach(slot, pod, port) for pod in pods for port in (443, 5554, 8888))
    assert [pod for pod in pods if not world.may_reach(pod, gateway, 8888)] == [slot]
    assert [pod for pod in pods if world.may_reach(pod, gateway, 8889)] == kernels  # where bursts are
    assert not any(world.may_reach(pod, gateway, 8890) for pod in pods)
    assert all(world.may_reach(kernel, neighbour, 443) for kernel in kernels)

    release.upgrade(networkPolicy={"from": [{"podSelector": {}}], "kernelEgress": [{"ports": [{"port": 53}]}]})
    world = replace(world, policies=release.cluster.get("networkpolicies", "--all-namespaces")["items"])
    assert world.may_reach(neighbour, release.pod(), 8888) and not any(world.may_reach(kernel, release.pod(), 8888) for kernel in kernels)
    assert all(world.may_reach(kernel, neighbour, 53) and not world.may_reach(kernel, neighbour, 443) for kernel in kernels)


def test_a_cell_runs_on_many_workers_with_no_more_rights_than_the_chart_gives(release: Release) -> None:
    service = release.cluster.get("service", "elastic-gateway", "-n", release.namespace)["spec"]["clusterIP"]
    release.upgrade(bursts={"address": f"https://{service}:8889"})  # as the tests' cluster has no DNS
    until(release.answers)
    with release.kernel("elastic", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.run("%%distributed -w 2 -e none\nresult = RANK + WORLD_SIZE\nprint('here', RANK)")
        assert (cell.status, sorted(cell.out.splitlines())) == ("ok", ["[0] here 0", "[1] here 1"]), (cell, release.log)
        assert browser.run("print(result)").out == "2\n"
    until(lambda: release.pods(names.ROLE_RANK) == [])


class Lab:
    """A JupyterLab of this machine in front of a gateway, addressed as one."""

    def __init__(self, machine: Machine, gateway: Gateway) -> None:
        port = free_port()
        self.url, self.headers, self.log = f"http://127.0.0.1:{port}", gateway.headers, machine.root / "lab.log"
        (machine.root / "lab.py").write_text(
            f"c = get_config()\nc.IdentityProvider.token = c.GatewayClient.auth_token = {gateway.token!r}\nc.ServerApp.allow_root = True\n"
        )
        command = [sys.executable, "-m", "jupyterlab", f"--config={machine.root / 'lab.py'}", f"--port={port}", "--no-browser",
                   f"--gateway-url={gateway.url}"]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **machine.env}, cwd=machine.root, stdout=log, stderr=log)

    call, answers = Gateway.call, Gateway.answers


def test_a_jupyterlab_connects_through_the_service(release: Release, pod_machine: Machine) -> None:
    lab = Lab(pod_machine, release)
    try:
        until(lab.answers)
        specs = lab.call("GET", "/api/kernelspecs").json()["kernelspecs"]
        assert specs["elastic"]["spec"]["display_name"] == "Elastic"
        made = lab.call("POST", "/api/sessions", json={"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"name": "elastic"}})
        assert made.status_code == 201, made.text
        kernel = Kernel(release, made.json()["kernel"]["id"])
        with kernel:
            browser = Browser(lab, kernel.id)  # type: ignore[arg-type]
            kernel.browsers.append(browser)
            assert browser.run("import socket; print(socket.gethostname())").out == f"{names.kernel_pod(kernel.id)}\n"
            assert kernel.id in [each["id"] for each in lab.call("GET", "/api/kernels").json()]
    finally:
        lab.process.terminate()
        lab.process.wait(PATIENCE)
