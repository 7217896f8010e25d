"""Several users of one real gateway, each with a token: what each may see and do, and under whose name kernels run."""

from __future__ import annotations

import http.client
import signal

import pytest
import requests
import websocket

from gateway.backends.places import user_name
from gateway.server.people import hashed
from tests.integration.machine import PATIENCE, until
from tests.integration.serving import GPU, Gateway, Kernel
from tests.integration.users import TOKENS, Someone


def listed(someone: Gateway) -> set[str]:
    return {model["id"] for model in someone.call("GET", "/api/kernels").json()}


def test_a_wrong_token_or_none_lets_nobody_in(site: Gateway):
    for headers in ({}, {"Authorization": "token wrong"}, {"Authorization": f"token {hashed(TOKENS['ana'])}"}):
        assert requests.get(f"{site.url}/api/kernels", headers=headers, timeout=PATIENCE).status_code == 403
    assert Someone(site, TOKENS["ana"]).call("GET", "/api/me").json()["identity"]["username"] == "ana"


def test_a_kernel_runs_under_the_name_of_the_token_whatever_the_client_claims(site: Gateway, ana: Someone):
    with ana.kernel(KERNEL_USERNAME="bo") as kernel:
        kernel.open().run(GPU + "1")
        assert kernel.lease["user"] == "ana"
        held = ana.call("GET", f"/api/gpu/policy?kernel={kernel.id}").json()
        assert (held["user"], held["groups"], held["settings"]["idle_timeout"]["value"]) == ("ana", ["students"], 33.0)
        assert "asked for a kernel as 'bo'" in site.log


def test_a_kernelspec_with_users_of_its_own_is_shown_to_them_alone_and_started_by_them_alone(site, ana, bo, ops, lab):
    site.machine.variant("anas", metadata={"allowed_users": ["ana"]})

    def offered(someone: Someone, query: str = "") -> bool:
        return "anas" in someone.call("GET", f"/api/kernelspecs{query}").json()["kernelspecs"]

    assert [offered(someone) for someone in (ana, bo, ops, lab)] == [True, False, True, True]
    assert [offered(*each) for each in ((lab, "?user=ana"), (lab, "?user=bo"), (bo, "?user=ana"))] == [True, False, False]
    assert [someone.call("GET", "/api/kernelspecs/anas").status_code for someone in (ana, bo)] == [200, 403]
    ana.kernel("anas").call("DELETE")
    refused = [
        bo.call("POST", "/api/kernels", json={"name": "anas"}),
        bo.call("POST", "/api/sessions", json={"path": "x", "type": "notebook", "kernel": {"name": "anas"}}),
        lab.call("POST", "/api/kernels", json={"name": "anas", "env": {"KERNEL_USERNAME": "bo"}}),
    ]
    assert [(answer.status_code, answer.json()["reason"]) for answer in refused] == [(403, "forbidden")] * 3


def test_a_trusted_front_end_says_whose_kernel_it_starts(lab: Someone, ana: Someone):
    with lab.kernel(KERNEL_USERNAME="ana") as kernel:
        assert kernel.id in listed(ana)
        kernel.open().run(GPU + "1")
        assert kernel.lease["user"] == "ana"


def test_a_user_whom_a_trusted_front_end_names_is_given_no_kernel_of_another(lab: Someone, ana: Someone):
    with ana.kernel() as kernel:
        for name, expected in (("bo", 403), ("ana", 201)):
            asked = lab.call("POST", "/api/kernels", json={"name": "elastic", "env": {"KERNEL_USERNAME": name, "KERNEL_ID": kernel.id}})
            assert asked.status_code == expected, asked.text


def test_users_act_on_their_own_kernels_alone(ana: Someone, bo: Someone, ops: Someone, lab: Someone):
    with ana.kernel() as kernel:
        browser = kernel.open()
        assert browser.run(GPU + "x = 1; print(x)").out == "1\n"
        assert kernel.id not in listed(bo)
        assert all(kernel.id in listed(someone) for someone in (ana, ops, lab))
        theirs = Kernel(bo, kernel.id)
        refused = [
            theirs.call("GET"), theirs.call("DELETE"), theirs.call("POST", "/interrupt"), theirs.call("POST", "/restart"),
            bo.call("POST", f"/api/gpu/kernels/{kernel.id}/release"),
            bo.call("POST", f"/api/gpu/kernels/{kernel.id}/hold", json={"seconds": 5}),
            bo.call("GET", f"/api/gpu/policy?kernel={kernel.id}"),
            bo.call("POST", "/api/kernels", json={"name": "elastic", "kernel_id": kernel.id}),
            bo.call("POST", "/api/sessions", json={"path": "b.ipynb", "type": "notebook", "kernel": {"id": kernel.id}}),
        ]  # fmt: skip
        assert [response.status_code for response in refused] == [403] * len(refused)
        assert all(response.json()["message"] for response in refused)
        with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
            theirs.open()
        assert browser.run("print(x)").out == "1\n"
        assert ops.call("POST", f"/api/gpu/kernels/{kernel.id}/release").ok
        until(lambda: kernel.lease["phase"] == "PARKED")
        assert Kernel(lab, kernel.id).open().run("print(x)").out == "1\n"


def test_a_user_called_like_the_gateways_unix_user_has_no_kernels_that_were_started_without_a_name(site: Gateway):
    namesake, kernel = Someone(site, TOKENS[user_name()]), site.kernel()
    kernel.open().run(GPU + "x = 1")
    for life in ("the first", "the next gateway's"):
        assert kernel.id in listed(site) and kernel.id not in listed(namesake), life
        theirs = Kernel(namesake, kernel.id)
        assert [theirs.call("GET").status_code, theirs.call("DELETE").status_code] == [403, 403]
        assert namesake.call("POST", f"/api/gpu/kernels/{kernel.id}/hold", json={"seconds": 5}).status_code == 403
        with namesake.kernel() as own:
            own.open().run("1")
            assert listed(namesake) == {own.id}
            if life == "the first":
                site.stop(signal.SIGKILL)
                site.start()
                until(lambda: kernel.id in listed(site))
                assert listed(namesake) == {own.id}
    assert kernel.open().run("print(x)").out == "1\n"
    assert kernel.call("DELETE").status_code == 204


def test_a_kernels_id_in_other_letters_is_still_that_kernels(ana: Someone, bo: Someone):
    with ana.kernel() as kernel:
        kernel.open().run(GPU + "1")
        odd = "".join(f"%{ord(letter):02x}" for letter in kernel.id)
        connection = http.client.HTTPConnection("127.0.0.1", bo.port, timeout=PATIENCE)
        connection.request("POST", f"/api/gpu/kernels/{odd}/release", headers={**bo.headers, "Content-Length": "0"})
        assert connection.getresponse().status == 403
        connection.close()


def test_two_users_bursts_of_one_name_are_two(ana: Someone, bo: Someone, ops: Someone):
    with ana.kernel() as hers, bo.kernel() as his:
        for kernel, made in ((hers, 1), (his, 2)):
            assert kernel.open().run(f"%%distributed -w 1 -e none --name same\nmade = {made}").status == "ok"
        mine = bo.call("GET", "/api/bursts/same").json()
        assert (mine["user"], mine["kernel_id"]) == ("bo", his.id)
        theirs = next(each for each in ops.call("GET", "/api/bursts").json()["bursts"] if each["user"] == "ana")
        assert [each["user"] for each in bo.call("GET", "/api/bursts").json()["bursts"]] == ["bo"]
        for path in ("", "/events", "/result/0"):
            assert bo.call("GET", f"/api/bursts/{theirs['id']}{path}").status_code == 403
        assert bo.call("DELETE", f"/api/bursts/{theirs['id']}").status_code == 403
        assert bo.call("POST", f"/api/bursts/{theirs['id']}/scale", json={"workers": 1}).status_code == 403
        assert ops.call("GET", f"/api/bursts/{theirs['id']}").json()["user"] == "ana"


def test_what_is_everybodys_is_changed_by_admins_alone(site: Gateway, ana: Someone, ops: Someone, lab: Someone):
    for someone in (ana, lab):
        assert someone.call("GET", "/api/gpu").ok and someone.call("GET", "/api/gpu/policy").ok
        for method, path, body in (
            ("PATCH", "/api/gpu/policy", {"idle_timeout": 1}),
            ("POST", "/api/gpu/nodes/local/drain", {"on": True}),
            ("POST", "/api/shutdown", {"kernels": True}),
        ):
            assert someone.call(method, path, json=body).status_code == 403
        with someone.kernel() as own:
            assert someone.call("PATCH", f"/api/gpu/policy?kernel={own.id}", json={"idle_timeout": 1}).status_code == 403
    for someone in (ops, site):  # the gateway's own token is an admin's, too
        assert someone.call("PATCH", "/api/gpu/policy", json={"max_hold": 3600}).ok


def test_two_users_with_notebooks_of_one_name_have_a_kernel_each(ana: Someone, bo: Someone):
    body = {"path": "Untitled.ipynb", "type": "notebook", "name": "", "kernel": {"name": "elastic"}}
    sessions = [someone.call("POST", "/api/sessions", json=body).json() for someone in (ana, bo)]
    try:
        assert sessions[0]["kernel"]["id"] != sessions[1]["kernel"]["id"]
        assert ana.call("POST", "/api/sessions", json=body).json()["id"] == sessions[0]["id"]
        assert [model["id"] for model in bo.call("GET", "/api/sessions").json()] == [sessions[1]["id"]]
        assert bo.call("GET", f"/api/sessions/{sessions[0]['id']}").status_code == 403
        assert bo.call("DELETE", f"/api/sessions/{sessions[0]['id']}").status_code == 403
    finally:
        for someone, session in zip((ana, bo), sessions, strict=True):
            assert someone.call("DELETE", f"/api/sessions/{session['id']}").status_code == 204


def test_a_kernel_is_still_its_users_after_the_gateway_was_killed(site: Gateway, ana: Someone, bo: Someone):
    import signal

    with ana.kernel() as kernel:
        kernel.open().run("x = 5")
        site.stop(signal.SIGKILL)
        site.start()
        until(lambda: kernel.id in listed(ana))
        assert kernel.id not in listed(bo)
        assert Kernel(bo, kernel.id).call("DELETE").status_code == 403
        held = ana.call("GET", f"/api/gpu/policy?kernel={kernel.id}").json()
        assert held["groups"] == ["students"]
