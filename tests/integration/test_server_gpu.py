"""``/api/gpu`` of a real gateway: one simulated GPU, kernels that want it, and an operator."""

from __future__ import annotations

import json
import threading

import pytest
import requests

from tests.integration.machine import until
from tests.integration.serving import GPU


@pytest.fixture
def pair(gateway):
    with gateway.kernel(KERNEL_USERNAME="ada") as one, gateway.kernel(KERNEL_USERNAME="bob") as two:
        yield one, two


def test_a_cell_that_needs_a_gpu_gets_it_and_the_picture_says_so(gateway, pair):
    browser = pair[0].open()
    visible = browser.run(GPU + "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").out.strip()
    lease = pair[0].lease
    assert (lease["phase"], lease["gpus"], lease["user"]) == ("HOLDING", [visible], "ada")
    picture = gateway.gpu()
    assert [gpu["uuid"] for gpu in picture["gpus"]] == [visible]
    assert picture["queue"] == []
    assert isinstance(picture["generation"], int)


@pytest.mark.case("G03")
def test_a_cell_that_waits_says_so_and_can_be_stopped(gateway, pair):
    holder, waiter = (kernel.open() for kernel in pair)
    running = holder.begin(GPU + "import time; time.sleep(4)")
    until(lambda: pair[0].lease["executing"])
    cell = waiter.begin(GPU + "print('got it')")
    line = waiter.wait(lambda m: m["parent"] == cell and m["type"] in ("display_data", "update_display_data"))
    assert "GPU" in str(line["content"]["data"])
    until(lambda: [each["kernel_id"] for each in gateway.gpu()["queue"]] == [pair[1].id])
    assert pair[1].state == "busy"
    assert pair[1].call("POST", "/interrupt").status_code == 204
    assert waiter.finish(cell).ename == "KeyboardInterrupt"
    until(lambda: gateway.gpu()["queue"] == [])
    again = waiter.begin(GPU + "print('got it')")
    assert holder.finish(running).status == "ok"
    assert waiter.finish(again).out == "got it\n"


@pytest.mark.case("C05", "G01")
def test_a_gpu_goes_from_kernel_to_kernel_and_is_free_in_between(gateway, pair):
    before = gateway.call("GET", "/api/gpu/policy").json()["idle_timeout"]
    browsers = [kernel.open() for kernel in pair]
    gateway.call("PATCH", "/api/gpu/policy", json={"idle_timeout": 0})
    try:
        for turn in range(1, 11):
            for browser in browsers:
                cell = browser.run(GPU + "import os; keep = globals().get('keep', 0) + 1; print(keep, os.environ['CUDA_VISIBLE_DEVICES'])")
                assert cell.out.startswith(f"{turn} GPU-SIM-")
                until(lambda: not any(lease["gpus"] for lease in gateway.gpu()["leases"]))
    finally:
        gateway.call("PATCH", "/api/gpu/policy", json={"idle_timeout": before})


def test_a_cpu_cell_never_waits(pair):
    holder, other = (kernel.open() for kernel in pair)
    running = holder.begin(GPU + "import time; time.sleep(2)")
    until(lambda: pair[0].lease["executing"])
    assert other.run("print(1)").out == "1\n"
    assert not [m for m in holder.messages if m["type"] == "execute_reply" and m["parent"] == running]
    holder.finish(running)


def test_an_operator_releases_an_idle_gpu_and_not_a_busy_one(gateway, pair):
    browser = pair[0].open()
    running = browser.begin(GPU + "import time; time.sleep(1.5); x = 41")
    until(lambda: pair[0].lease["executing"])
    refused = gateway.call("POST", f"/api/gpu/kernels/{pair[0].id}/release")
    assert refused.status_code == 409
    assert refused.json()["reason"] == "executing"
    browser.finish(running)
    until(lambda: not pair[0].lease["executing"])
    assert gateway.call("POST", f"/api/gpu/kernels/{pair[0].id}/release").ok
    until(lambda: pair[0].lease["phase"] == "PARKED")
    assert browser.run(GPU + "print(x + 1)").out == "42\n"


def test_a_hold_is_set_and_ended_and_a_bad_one_refused(gateway, pair):
    pair[0].open().run(GPU + "1")
    for seconds in (60, 0):
        assert gateway.call("POST", f"/api/gpu/kernels/{pair[0].id}/hold", json={"seconds": seconds}).ok
    for body in ({"seconds": -1}, {"seconds": "long"}, {}, [], {"seconds": True}):
        assert gateway.call("POST", f"/api/gpu/kernels/{pair[0].id}/hold", json=body).status_code == 400
    for action in ("hold", "release"):
        unknown = gateway.call("POST", f"/api/gpu/kernels/1-2-3-4-5/{action}", json={"seconds": 1})
        assert unknown.status_code == 404


def test_a_policy_change_is_in_force_at_once_and_a_bad_one_changes_nothing(gateway, pair):
    before = gateway.call("GET", "/api/gpu/policy").json()
    browser = pair[0].open()
    browser.run(GPU + "1")
    assert pair[0].lease["phase"] == "HOLDING"
    try:
        for bad in ({"idle_timeout": -1}, {"idle_timeout": "soon"}, {"nonsense": 1}, [], {"min_hold": 1, "max_hold": "x"}):
            refused = gateway.call("PATCH", "/api/gpu/policy", json=bad)
            assert refused.status_code == 400
            assert refused.json()["message"]
        assert gateway.call("GET", "/api/gpu/policy").json() == before
        assert gateway.call("PATCH", "/api/gpu/policy", json={"idle_timeout": 0.1}).json()["idle_timeout"] == 0.1
        until(lambda: pair[0].lease["phase"] == "PARKED")
    finally:
        gateway.call("PATCH", "/api/gpu/policy", json={"idle_timeout": before["idle_timeout"]})


def test_each_change_is_an_event(gateway, pair):
    events: list[tuple[str, object]] = []
    begun = threading.Event()

    def read() -> None:
        with requests.get(f"{gateway.url}/api/gpu/events", headers=gateway.headers, stream=True, timeout=60) as response:
            name = ""
            for line in response.iter_lines():
                text = line.decode()
                if text.startswith("event: "):
                    name = text.removeprefix("event: ")
                elif text.startswith("data: "):
                    events.append((name, json.loads(text.removeprefix("data: "))))
                    begun.set()
                    if name == "lease" and events[-1][1]["phase"] == "HOLDING" and events[-1][1]["kernel_id"] == pair[0].id:
                        return

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    assert events[0][0] == "state"
    assert set(events[0][1]) >= {"gpus", "leases", "queue", "generation"}
    pair[0].open().run(GPU + "1")
    reader.join(60)
    assert not reader.is_alive()


def test_metrics_say_how_many_hold_and_wait(gateway, pair):
    pair[0].open().run(GPU + "1")
    text = gateway.call("GET", "/metrics").text
    assert 'elastic_gpus{held="yes"} 1.0' in text
    assert "elastic_queue_length 0.0" in text
    assert 'elastic_kernels{state="idle"}' in text


def test_a_drained_machine_lets_cells_end_and_begins_nothing_until_it_is_put_back(gateway, pair):
    browser = pair[0].open()
    running = browser.begin(GPU + "import time; time.sleep(2); x = 41")
    until(lambda: pair[0].lease["executing"])
    address = "/api/gpu/nodes/local/drain"
    try:
        assert gateway.call("POST", address, json={"on": True}).json()["drained"] == ["local"]
        assert browser.finish(running).status == "ok"
        until(lambda: pair[0].lease["phase"] == "PARKED")
        refused = pair[1].open().run(GPU + "1")
        assert refused.status == "error" and "drained" in refused.evalue
        assert browser.run("print(1)").out == "1\n"
        with gateway.kernel() as third:
            assert "drained" in third.open().run("1").evalue
    finally:
        assert gateway.call("POST", address, json={"on": False}).json()["drained"] == []
    assert browser.run(GPU + "print(x + 1)").out == "42\n"
    for path, body, status in ((address, {}, 400), (address, {"on": 1}, 400), ("/api/gpu/nodes/mars/drain", {"on": True}, 404)):
        assert gateway.call("POST", path, json=body).status_code == status


def test_a_kernel_may_be_started_without_any_gpu_or_with_too_many(gateway):
    with gateway.kernel(KERNEL_GPUS="0") as none:
        assert none.open().run(GPU + "print('runs')").out == "runs\n"
    with gateway.kernel(KERNEL_GPUS="9") as many:
        cell = many.open().run(GPU + "print('never')")
        assert cell.status == "error"
        assert "9" in cell.evalue
