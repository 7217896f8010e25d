"""What a real Enterprise Gateway answers and what this gateway does, to the same requests."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.enterprise.gateways import Enterprise
from tests.enterprise.venv import enterprise_python
from tests.integration.machine import PATIENCE, Machine, until
from tests.integration.serving import Gateway, end
from tests.server.test_swagger import served, verbs

pytestmark = pytest.mark.timeout(600)  # an environment for it may have to be made first

THEIR_ROUTES = """
import json
from enterprise_gateway.base.handlers import default_handlers as base
from enterprise_gateway.services.api.handlers import default_handlers as api
from enterprise_gateway.services.kernels.handlers import default_handlers as kernels
from enterprise_gateway.services.kernelspecs.handlers import default_handlers as kernelspecs
from enterprise_gateway.services.sessions.handlers import default_handlers as sessions
from tornado.web import RequestHandler
print(json.dumps([
    [route[0], verb]
    for route in [*base, *api, *kernels, *kernelspecs, *sessions] for verb in ("get", "post", "put", "patch", "delete")
    if getattr(route[1], verb) is not getattr(RequestHandler, verb)
]))
"""
NOBODY = "00000000-0000-0000-0000-000000000000"
EXAMPLES = {r"(?P<kernel_id>\w+-\w+-\w+-\w+-\w+)": NOBODY, r"(?P<session_id>\w+-\w+-\w+-\w+-\w+)": NOBODY}
EXAMPLES |= {r"(?P<action>restart|interrupt)": "restart", r"(?P<kernel_name>[\w\.\-%]+)": "elastic", r"(?P<path>.*)": "kernel.json"}

ASKED: list[tuple[str, str, str | None]] = [
    ("GET", "/api", None), ("GET", "/api/kernelspecs", None), ("GET", "/api/kernelspecs?user=bo", None),
    ("GET", "/api/kernelspecs/elastic", None), ("GET", "/api/kernelspecs/nonesuch", None),
    ("GET", "/kernelspecs/elastic/kernel.json", None),
    ("GET", "/kernelspecs/elastic/nothing", None), ("GET", "/api/kernels", None), ("GET", f"/api/kernels/{NOBODY}", None),
    ("DELETE", f"/api/kernels/{NOBODY}", None), ("POST", f"/api/kernels/{NOBODY}/interrupt", None),
    ("POST", f"/api/kernels/{NOBODY}/restart", None), ("GET", f"/api/kernels/{NOBODY}/channels", None), ("POST", "/api/kernels", "{"),
    ("POST", "/api/kernels", "[]"), ("POST", "/api/kernels", '{"name": 5}'), ("POST", "/api/kernels", '{"name": "nonesuch"}'),
    ("POST", "/api/kernels", '{"name": "elastic", "env": []}'), ("GET", "/api/sessions", None), ("GET", f"/api/sessions/{NOBODY}", None),
    ("DELETE", f"/api/sessions/{NOBODY}", None), ("PATCH", f"/api/sessions/{NOBODY}", "{}"), ("POST", "/api/sessions", "{}"),
    ("POST", "/api/sessions", '{"path": "x", "type": "notebook", "kernel": {"name": "nonesuch"}}'), ("GET", "/api/nothing", None),
    ("PUT", "/api/kernels", "{}"),
]  # fmt: skip
OTHERWISE = {  # where theirs is an error of the server's for what is one of the client's
    ("POST", f"/api/kernels/{NOBODY}/restart", None): (500, 404),
    ("POST", "/api/kernels", "[]"): (500, 400),
    ("POST", "/api/kernels", '{"name": 5}'): (500, 400),
    ("POST", "/api/kernels", '{"name": "nonesuch"}'): (500, 404),
    ("POST", "/api/sessions", '{"path": "x", "type": "notebook", "kernel": {"name": "nonesuch"}}'): (501, 404),
    ("DELETE", f"/api/sessions/{NOBODY}", None): (410, 404),
}


class WithToken(Enterprise):
    """One that has a token of its own, without which it doesn't even tell its version."""

    def __init__(self, elastic: Gateway) -> None:
        settings = ("list_kernels=True", "auth_token=theirs", "unauthorized_users=mallory")  # sessions start as this user, maybe root
        super().__init__(elastic, *(f"EnterpriseGatewayApp.{setting}" for setting in settings))
        self.headers = {"Authorization": "token theirs"}

    def answers(self) -> bool:
        with suppress(requests.ConnectionError):
            return requests.get(f"{self.url}/api/swagger.json", timeout=PATIENCE).ok
        return False


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Gateway, Gateway]]:
    """``(theirs, ours)``"""
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    ours = Gateway(machine)
    theirs = WithToken(ours)
    yield theirs, ours
    theirs.stop()
    end(ours)
    machine.clean()


def test_every_address_of_its_handlers_is_served_by_the_same_verbs():
    found = json.loads(subprocess.run([enterprise_python(), "-c", THEIR_ROUTES], capture_output=True, text=True, check=True).stdout)
    assert len(found) > 12
    missing = []
    for pattern, verb in found:
        address = pattern
        for part, example in EXAMPLES.items():
            address = address.replace(part, example)
        if not [handler for ours, handler in served() if re.fullmatch(ours, address) and verb in verbs(handler)]:
            missing.append((verb, address))
    assert missing == []


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: " ".join(filter(None, asked)))
def test_a_request_gets_the_status_that_it_gets_there_and_all_that_is_told_there(both, asked):
    method, path, body = asked
    theirs, ours = (gateway.call(method, path, data=body) for gateway in both)
    assert (theirs.status_code, ours.status_code) == OTHERWISE.get(asked, (theirs.status_code, theirs.status_code)), (
        theirs.text,
        ours.text,
    )
    if ours.ok:
        assert keys(theirs.json()) <= keys(ours.json())
    else:
        assert ours.json()["message"] and ours.json()["reason"]


def keys(told: Any) -> set[str]:
    return set(told) if isinstance(told, dict) else set()


def life(gateway: Gateway) -> list[tuple[int, list[str], bool]]:
    """Of a kernel, and of a session with one of its own: statuses, what is told, whether a place is named."""
    made = gateway.call("POST", "/api/kernels", json={"name": "elastic", "env": {"KERNEL_USERNAME": "ada"}})
    address = f"/api/kernels/{made.json()['id']}"
    until(lambda: gateway.call("GET", address).json()["execution_state"] != "starting")
    answers = [
        made,
        *(gateway.call(*each) for each in (("GET", address), ("POST", f"{address}/interrupt"), ("POST", f"{address}/restart"))),
    ]
    answers += [gateway.call("DELETE", address), gateway.call("GET", address)]
    wish = {"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"name": "elastic"}}
    session = gateway.call("POST", "/api/sessions", json=wish)
    assert session.status_code == 201, session.text
    place = f"/api/sessions/{session.json()['id']}"
    answers += [session, gateway.call("PATCH", place, json={"path": "b.ipynb"}), gateway.call("GET", place), gateway.call("DELETE", place)]
    answers.append(gateway.call("GET", f"/api/kernels/{session.json()['kernel']['id']}"))  # its session's end was its own
    return [(answer.status_code, sorted(answer.json()) if answer.text else [], "Location" in answer.headers) for answer in answers]


def test_the_life_of_a_kernel_and_its_session_is_told_as_there(both):
    theirs, ours = map(life, both)
    pairs = [(here, there) for here, there in zip(ours, theirs, strict=True) if there[0] != 500]
    assert len(pairs) >= len(theirs) - 2  # renaming a session fails there, and what comes after it
    assert [(here[0], here[2]) for here, _ in pairs] == [(there[0], there[2]) for _, there in pairs]
    assert all(set(there[1]) <= set(here[1]) for here, there in pairs)


def test_who_has_no_token_is_given_the_description_and_nothing_else(both):
    for gateway in both:
        assert requests.get(f"{gateway.url}/api/swagger.json", timeout=PATIENCE).json()["swagger"] == "2.0"
        yaml = requests.get(f"{gateway.url}/api/swagger.yaml", timeout=PATIENCE)
        assert yaml.ok and "json" not in yaml.headers["Content-Type"]
        for path in ("/api/kernels", "/api/kernelspecs", "/api/sessions"):
            assert requests.get(gateway.url + path, timeout=PATIENCE).status_code in (401, 403)
