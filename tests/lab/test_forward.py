"""The gateway's REST interface in the Lab server, with a real server between a page and a gateway that comes and goes."""

from __future__ import annotations

import asyncio
import json

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.tcpclient import TCPClient

from tests.lab.conftest import TOKEN, Lab, eventually
from tests.lab.double import Gateway


async def ask(lab: Lab, method: str, path: str, token: str = TOKEN, body: str | None = None):
    request = HTTPRequest(
        f"http://127.0.0.1:{lab.port}{path}",
        method=method,
        body=body,
        headers={"Authorization": f"token {token}", "Cookie": "page=1"},
        allow_nonstandard_methods=True,
        request_timeout=60,
    )
    return await AsyncHTTPClient().fetch(request, raise_error=False)


def test_a_request_goes_on_as_it_is_under_other_credentials_and_its_answer_comes_back(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        answer = await ask(lab, "POST", "/api/gpu/kernels/k1/hold?a=1", body='{"seconds": 5}')
        asked = json.loads(answer.body)
        assert answer.code == 409
        assert (asked["method"], asked["uri"], asked["body"]) == ("POST", "/api/gpu/kernels/k1/hold?a=1", '{"seconds": 5}')
        assert TOKEN not in asked["authorization"]
        assert asked["cookie"] == ""
        assert "X-Secret" not in answer.headers
        assert (await ask(lab, "GET", "/api/bursts")).code == 200
        assert json.loads((await ask(lab, "DELETE", "/api/bursts/burst-1")).body)["method"] == "DELETE"

    story(tell)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("PATCH", "/api/gpu/policy", 404),
        ("GET", "/api/gpu/policy", 404),
        ("POST", "/api/gpu/nodes/local/drain", 404),
        ("POST", "/api/bursts/burst-1/scale", 404),
        ("POST", "/api/gpu", 405),
        ("GET", "/api/gpu/kernels/k1/release", 405),
        ("DELETE", "/api/bursts/..%2Fkernels%2Fk1", 404),
        ("GET", "/api/gpu/../kernels", 404),
    ],
)
def test_what_the_page_has_no_use_for_does_not_pass(story, method, path, code):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        assert (await ask(lab, method, path, body="{}" if method in ("POST", "PATCH") else None)).code == code

    story(tell)


def test_whoever_the_lab_server_does_not_know_reaches_no_gateway(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        assert (await ask(lab, "GET", "/api/gpu", token="somebody")).code == 403

    story(tell)


def test_while_the_gateway_is_away_the_page_is_told_so(lab):
    answer = asyncio.run(ask(lab, "GET", "/api/gpu"))
    assert answer.code == 503
    assert json.loads(answer.body)["reason"] == "gateway_away"


def test_events_come_as_they_happen_and_a_page_that_leaves_ends_the_stream_at_the_gateway(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        page = await TCPClient().connect("127.0.0.1", lab.port)
        await page.write(f"GET /api/gpu/events HTTP/1.1\r\nHost: localhost:{lab.port}\r\nAuthorization: token {TOKEN}\r\n\r\n".encode())
        head = await page.read_until(b"\r\n\r\n")
        assert b"text/event-stream" in head and b"Date: " in head
        await page.read_until(b"event: state\ndata: {}\n\n")
        (stream,) = gateway.streams
        await stream.say("event: queue\ndata: []\n\n")
        await page.read_until(b"event: queue\ndata: []\n\n")
        page.close()
        await eventually(lambda: not gateway.streams)

    story(tell)


def test_a_gateway_that_ends_ends_the_stream(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        page = await TCPClient().connect("127.0.0.1", lab.port)
        await page.write(f"GET /api/gpu/events HTTP/1.0\r\nHost: localhost:{lab.port}\r\nAuthorization: token {TOKEN}\r\n\r\n".encode())
        await page.read_until(b"data: {}\n\n")
        await gateway.kill()
        gateway.start()
        try:
            await asyncio.wait_for(page.read_until_close(), 60)
        except StreamClosedError:
            pass

    story(tell)
