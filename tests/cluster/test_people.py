"""Several users of a gateway that Helm installed: each by a token of its own from a Secret, with rules from the chart's values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import websocket

from gateway.backends.kubernetes import names
from gateway.server.people import hashed
from tests.cluster.device_plugin import DevicePlugin
from tests.cluster.release import Release
from tests.integration.machine import until
from tests.integration.serving import GPU, Gateway, Kernel

TOKENS = {name: f"{name}-{'x' * 40}" for name in ("ana", "bo", "ops")}
RULES = {"groups": {"students": {"gpus_per_user": 1}}, "site": {"idle_timeout": 90}}


class Someone(Gateway):
    """The same gateway, asked by one of its users."""

    def __init__(self, release: Release, token: str) -> None:
        self.url, self.token, self.headers = release.url, token, {"Authorization": f"token {token}"}


@pytest.fixture
def people(release: Release, one_gpu: DevicePlugin) -> Iterator[dict[str, Someone]]:
    """``ana``, a student, ``bo``, and ``ops``, an administrator; there are two GPUs."""
    one_gpu.offer(["GPU-0", "GPU-1"])
    extra = {"ana": {"groups": ["students"]}, "ops": {"admin": True}}
    users = {name: {"token": hashed(token), **extra.get(name, {})} for name, token in TOKENS.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "people"}, "stringData": {"users.yaml": json.dumps(users)}}
    release.cluster.apply(secret, namespace=release.namespace)
    release.upgrade(users={"existingSecret": "people"}, policy=RULES)
    release.connect()
    yield {name: Someone(release, token) for name, token in TOKENS.items()}
    assert release.call("POST", "/api/shutdown", json={"kernels": True}).ok
    until(lambda: release.pods(names.ROLE_KERNEL) == [])


def change_rules(release: Release, rules: dict[str, Any]) -> None:
    """As `kubectl edit` does; a change of the pod's annotations has its kubelet look at its volumes at once."""
    change = json.dumps({"data": {"policy.yaml": json.dumps(rules)}})
    release.cluster.kubectl("patch", "configmap", "elastic-gateway-policy", "-n", release.namespace, "-p", change)
    release.cluster.kubectl("annotate", "pod", release.pod()["metadata"]["name"], "-n", release.namespace, f"rules={len(str(rules))}")


def held(gateway: Gateway, user: str) -> dict[str, Any]:
    rows = gateway.call("GET", "/api/gpu/usage?by=user").json()["rows"]
    return next((row for row in rows if row["user"] == user), {})


def test_users_quotas_and_rules_of_the_charts_values_hold_for_pods(release: Release, people: dict[str, Someone]) -> None:
    ana, bo, ops = people["ana"], people["bo"], people["ops"]

    # 1. a pod belongs to whom the token says, and nobody else comes near it
    one, two = ana.kernel("gpu", KERNEL_USERNAME="bo"), ana.kernel("gpu")
    browser, second = one.open(), two.open()
    cell = browser.begin(GPU + "import time\nwhile not globals().get('stop'): time.sleep(.1)")
    until(lambda: one.lease["executing"])
    owners = {pod["metadata"]["labels"][names.KERNEL]: pod["metadata"]["labels"][names.USER] for pod in release.pods(names.ROLE_KERNEL)}
    assert owners[one.id] == owners[two.id] == "ana"
    assert [pod["metadata"]["labels"][names.USER] for pod in release.pods(names.ROLE_SLOT)] == ["ana"]
    theirs = Kernel(bo, one.id)
    assert {theirs.call(method, path).status_code for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/interrupt"))} == {403}
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        theirs.open()
    assert bo.call("GET", "/api/kernels").json() == []

    # 2. over her quota she waits for herself and is told so, though a GPU is idle; bo gets that one
    waits = second.begin(GPU + "print('mine')")
    told = "you hold 1 GPU and may hold 1 (gpus_per_user of group students)"
    second.wait(lambda m: m["parent"] == waits and m["type"].endswith("display_data") and told in str(m["content"]["data"]))
    with bo.kernel("gpu") as other:
        assert other.open().run(GPU + "print('bo')").out == "bo\n"
        assert two.lease["phase"] == "WAITING"

    # 3. rules are an administrator's: changed by REST they hold at once, for what waits too
    assert ana.call("PATCH", "/api/gpu/policy", json={"users": {"ana": {"gpus_per_user": 2}}}).status_code == 403
    assert ops.call("PATCH", "/api/gpu/policy", json={"groups": {"students": {"gpus_per_user": 2}}}).ok
    assert "mine\n" in second.finish(waits).out
    assert len(release.pods(names.ROLE_SLOT)) == 2

    # 4. and changed in the ConfigMap they hold without a restart
    pod = release.pod()["metadata"]["uid"]
    change_rules(release, {**RULES, "users": {"ana": {"idle_timeout": 1}}})
    until(lambda: two.lease["phase"] == "PARKED", seconds=150)
    assert one.lease["executing"] and release.pod()["metadata"]["uid"] == pod
    assert one.call("POST", "/interrupt").status_code == 204
    assert browser.finish(cell).ename == "KeyboardInterrupt"
    until(lambda: one.lease["phase"] == "PARKED" and release.pods(names.ROLE_SLOT) == [])

    # 5. each sees own GPU time, the administrator everybody's
    assert held(ana, "ana")["gpu_seconds_held"] >= held(ana, "ana")["gpu_seconds_executed"] > 0
    assert held(ana, "bo") == {} and held(ops, "bo")["gpu_seconds_held"] > 0
    assert held(ops, "ana")["cells"] == 2
