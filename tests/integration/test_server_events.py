"""A real gateway's events, as jupyter_server's clients hear them: by a websocket, each user of their own kernels."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import websocket

from tests.integration.machine import PATIENCE, Machine, until
from tests.integration.serving import GPU, Gateway, end
from tests.integration.users import Someone

PREFIX = "https://schema.jupyter.org/jupyter_elastic_gateway/"


class Ear:
    """Hears the gateway's own events; ``found`` are ``(subject, action, kernel_id)``."""

    def __init__(self, someone: Gateway, query: str = "") -> None:
        self.events: list[dict[str, Any]] = []
        self._news = threading.Condition()
        url = f"{someone.url.replace('http', 'ws', 1)}/api/events/subscribe{query}"
        self.socket = websocket.create_connection(url, header=someone.headers, timeout=PATIENCE)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while text := self.socket.recv():
                with self._news:
                    self.events.append(json.loads(text))
                    self._news.notify_all()
        except (OSError, websocket.WebSocketException):
            pass

    def hears(self, subject: str, action: str, **fields: Any) -> dict[str, Any]:
        wanted = {"schema_id": f"{PREFIX}{subject}/v1", "action": action, **fields}

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events if wanted.items() <= event.items()]

        with self._news:
            assert self._news.wait_for(found, PATIENCE), f"{wanted} never came; there was {self.events}"
            return found()[0]

    def of(self, kernel_id: str) -> list[tuple[str, str]]:
        mine = [event for event in self.events if event.get("kernel_id") == kernel_id and event["schema_id"].startswith(PREFIX)]
        return [(event["schema_id"].split("/")[-2], event["action"]) for event in mine]


def test_a_kernel_and_its_lease_are_told_step_by_step_to_its_user_and_to_admins_alone(ana: Someone, bo: Someone, ops: Someone):
    ears = {who: Ear(who) for who in (ana, bo, ops)}
    with ana.kernel() as kernel:
        ears[ana].hears("kernel", "started", kernel_id=kernel.id)
        kernel.open().run(GPU + "1")
        ears[ana].hears("lease", "attached", kernel_id=kernel.id)
        assert ops.call("POST", f"/api/gpu/kernels/{kernel.id}/release").ok
        released = ears[ana].hears("lease", "released", kernel_id=kernel.id)
        assert (released["user"], released["reason"], len(released["gpus"])) == ("ana", "asked", 1)
    ended = ears[ana].hears("kernel", "ended", kernel_id=kernel.id)
    assert ended["user"] == "ana"
    steps = [("kernel", "started"), ("lease", "granted"), ("lease", "attached"), ("lease", "released"), ("kernel", "ended")]
    assert ears[ana].of(kernel.id) == steps
    ears[ops].hears("kernel", "ended", kernel_id=kernel.id)
    assert ears[ops].of(kernel.id) == steps
    with bo.kernel() as kernel:  # what comes after shows that nothing came before
        ears[bo].hears("kernel", "started", kernel_id=kernel.id)
    assert {event.get("user") for event in ears[bo].events} <= {"bo", None}
    assert {event.get("kernel_id") for event in ears[bo].events} == {kernel.id}


def test_one_may_ask_for_a_single_kernel_and_not_for_somebody_elses(ana: Someone, bo: Someone):
    with ana.kernel() as first, ana.kernel() as second:
        ear = Ear(ana, f"?kernel={second.id}")
        for kernel in (first, second):
            kernel.open().run(GPU + "1")
        ear.hears("lease", "attached", kernel_id=second.id)
        assert {event["kernel_id"] for event in ear.events} == {second.id}
        with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
            Ear(bo, f"?kernel={second.id}")


def test_rules_that_change_are_told_to_all_and_say_who_changed_them(ana: Someone, ops: Someone):
    ear = Ear(ana)
    assert ops.call("PATCH", "/api/gpu/policy", json={"users": {"cy": {"idle_timeout": 5}}}).ok
    event = ear.hears("policy", "changed")
    assert (event["source"], event["by"], event["changes"]) == ("request", "ops", {"users": {"cy": {"idle_timeout": 5}}})


def test_nobody_emits_an_event_from_outside_nor_listens_without_a_token(site: Gateway, ana: Someone, ops: Someone):
    event = {"schema_id": f"{PREFIX}kernel/v1", "version": "1", "data": {"action": "culled", "at": "2030-01-01T00:00:00Z"}}
    assert [who.call("POST", "/api/events", json=event).status_code for who in (ana, ops)] == [404, 404]
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        websocket.create_connection(f"{site.url.replace('http', 'ws', 1)}/api/events/subscribe", timeout=PATIENCE)


def test_the_log_can_be_json_with_the_ids_of_kernels_and_leases_and_no_secret(own_machine: Machine):
    gateway = Gateway(own_machine, "ElasticGateway.log_format=json")
    try:
        with gateway.kernel(KERNEL_USERNAME="ana") as kernel:
            assert kernel.open().run(GPU + "1").status == "ok"
        until(lambda: '"action": "ended"' in gateway.log)
        entries = [json.loads(line) for line in gateway.log.splitlines()]
        mine = [entry for entry in entries if entry.get("kernel_id") == kernel.id]
        assert {"granted", "attached", "started", "ended"} <= {entry.get("action") for entry in mine}
        assert {entry["lease_id"] for entry in mine if "lease_id" in entry and entry["subject"] == "lease"} != set()
        assert gateway.token not in gateway.log and "hush" not in gateway.log
    finally:
        end(gateway)
