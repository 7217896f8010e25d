"""Who may do what, decided without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.auth.identity import User

from gateway.protocol.errors import ElasticError
from gateway.server.access import ElasticAuthorizer
from gateway.server.people import Person

ANA = "aaaa-1-2-3-4"
BOS = "bbbb-1-2-3-4"


class Sessions:
    async def get_session(self, session_id: str) -> dict[str, Any]:
        return {"kernel": {"id": {"s-ana": ANA, "s-bo": BOS}[session_id]}}


class Bursts:
    def find(self, which: str, owner: str | None) -> Any:
        if which == "none":
            raise ElasticError("no")
        return SimpleNamespace(user={"b-ana": "ana", "b-bo": "bo"}[which])


def asked(path: str) -> Any:
    path, _, query = path.partition("?")
    kernels = SimpleNamespace(_kernels={ANA: SimpleNamespace(user="ana"), BOS: SimpleNamespace(user="bo")})
    broker = SimpleNamespace(links={"cccc": SimpleNamespace(supervisor=SimpleNamespace(whose_name="bo"))})
    settings = {"kernel_manager": kernels, "session_manager": Sessions(), "elastic_broker": broker}
    arguments = dict(each.split("=") for each in query.split("&")) if query else {}
    return SimpleNamespace(
        request=SimpleNamespace(path=path),
        settings=settings,
        bursts=Bursts(),
        get_query_argument=lambda name, other: arguments.get(name, other),
    )


def may(user: User, action: str, resource: str, path: str, **settings: Any) -> bool:
    return asyncio.run(ElasticAuthorizer(**settings).is_authorized(asked(path), user, action, resource))


@pytest.mark.parametrize(
    ("action", "resource", "path", "allowed"),
    [
        ("read", "kernels", "/api/kernels", True),
        ("write", "kernels", "/api/kernels", True),
        ("write", "sessions", "/api/sessions", True),
        ("read", "gpu", "/api/gpu", True),
        ("read", "kernelspecs", "/api/kernelspecs", True),
        ("write", "kernels", f"/api/kernels/{ANA}/restart", True),
        ("write", "kernels", f"/api/kernels/{BOS}/restart", False),
        ("execute", "kernels", f"/hub/user/x/api/kernels/{BOS}/channels", False),
        ("read", "kernels", "/api/kernels/dddd-1-2-3-4", True),  # there is none: it may be said
        ("write", "gpu", f"/api/gpu/kernels/{ANA}/hold", True),
        ("write", "gpu", f"/api/gpu/kernels/{BOS}/hold", False),
        ("write", "gpu", f"/api/gpu/kernels/%62{BOS[1:]}/hold", False),
        ("write", "gpu", "/api/gpu/kernels/cccc/release", False),  # papermill's, which is no kernel of the gateway
        ("read", "gpu", f"/api/gpu/policy?kernel={ANA}", True),
        ("read", "gpu", f"/api/gpu/policy?kernel={BOS}", False),
        ("write", "gpu", "/api/gpu/policy", False),
        ("write", "gpu", f"/api/gpu/policy?kernel={ANA}", False),
        ("write", "gpu", "/api/gpu/nodes/local/drain", False),
        ("write", "gpu", f"/api/gpu/nodes/%2Fapi%2Fkernels%2F{ANA}/drain", False),
        ("write", "server", f"/api/shutdown?kernel={ANA}", False),
        ("write", "sessions", "/api/sessions/s-ana", True),
        ("write", "sessions", "/api/sessions/s-bo", False),
        ("read", "sessions", "/api/sessions/none", True),
        ("write", "bursts", "/api/bursts/b-ana", True),
        ("write", "bursts", "/api/bursts/b-bo/scale", False),
        ("read", "bursts", "/api/bursts/none", True),
        ("write", "contents", "/api/contents/x", False),
    ],
)
def test_a_user_sees_what_is_shared_and_acts_on_own_kernels_alone(action: str, resource: str, path: str, allowed: bool):
    assert may(Person("ana"), action, resource, path) is allowed


@pytest.mark.parametrize("path", [f"/api/kernels/{BOS}", "/api/gpu/policy", "/api/shutdown"])
def test_admins_may_do_everything_whoever_calls_them_so(path: str):
    assert may(Person("ops", admin=True), "write", "gpu", path)
    assert may(User("ops"), "write", "gpu", path, admins=["ops"])
    assert not may(User("ops"), "write", "gpu", path)


@pytest.mark.parametrize(
    ("action", "resource", "path", "allowed"),
    [
        ("write", "kernels", f"/api/kernels/{BOS}", True),
        ("write", "gpu", f"/api/gpu/kernels/{BOS}/release", True),
        ("read", "gpu", f"/api/gpu/policy?kernel={BOS}", True),
        ("write", "gpu", "/api/gpu/policy", False),
        ("write", "gpu", f"/api/gpu/policy?kernel={BOS}", False),
        ("write", "server", "/api/shutdown", False),
    ],
)
def test_a_front_end_acts_on_all_kernels_and_on_nothing_else(action: str, resource: str, path: str, allowed: bool):
    assert may(Person("lab", front_end=True), action, resource, path) is allowed


def test_the_name_of_a_kernels_user_is_that_of_the_token_but_where_the_client_is_trusted():
    authorizer, claim = ElasticAuthorizer(), {"KERNEL_USERNAME": "bo", "X": "1"}
    assert authorizer.claims(Person("ana"), claim) == {"KERNEL_USERNAME": "ana", "X": "1"}
    assert authorizer.claims(Person("ana"), {}) == {"KERNEL_USERNAME": "ana"}
    assert authorizer.claims(Person("lab", front_end=True), claim) == claim
    assert authorizer.claims(Person("lab", front_end=True), {}) == {}
    assert authorizer.claims(Person("ops", admin=True), {}) == {"KERNEL_USERNAME": "ops"}
    assert authorizer.claims(Person("f00", admin=True, front_end=True, named=False), {}) == {}
