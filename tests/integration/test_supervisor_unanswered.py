"""A kernel that is through with a cell and never answers it keeps neither its GPU nor the front end waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.protocol.model import Phase

from .supervised import Supervised, collect

# Its next request is taken like any other, but the handler raises: `idle` is published, and no reply sent.
BREAK = """%%gpu
kernel = get_ipython().kernel
whole = kernel.do_execute
async def fails(*args, **kwargs):
    kernel.do_execute = whole
    raise RuntimeError("no reply")
kernel.do_execute = fails
"""


@pytest.fixture
def own() -> Iterator[Supervised]:
    supervised = Supervised()
    yield supervised
    supervised.end()


@pytest.mark.parametrize("later", [True, False])
def test_a_gpu_cell_that_the_kernel_never_answers_is_closed_and_gives_the_gpu_up(own: Supervised, later: bool) -> None:
    dialer, client = own.dial(), own.client()
    breaks = client.execute(BREAK)
    dialer.grant()
    assert collect(client, breaks)[0]["status"] == "ok"
    lost = client.execute("%%gpu\n1")
    replies: dict[str, dict[str, Any]] = {}
    sent = [lost, *([client.execute("%%gpu\n2")] if later else [])]
    while not replies.keys() >= set(sent):
        message = client.get_shell_msg(timeout=20)
        replies[message["parent_header"]["msg_id"]] = message["content"]
    assert replies[lost]["status"] == "error" and "never answered" in replies[lost]["evalue"]
    assert all(replies[each]["status"] == "ok" for each in sent[1:])
    state = dialer.until(lambda s: s.lease.phase == Phase.HOLDING and not s.lease.executing and not s.in_flight)
    assert state.execution_state == "idle"
    dialer.order("park")
    dialer.until(lambda s: s.lease.phase == Phase.PARKED)


def test_user_expressions_that_are_no_object_are_refused_before_the_kernel_sees_them(own: Supervised) -> None:
    dialer, client = own.dial(), own.client()
    content = {"code": "%%gpu\n1", "silent": False, "user_expressions": 7}
    message = client.session.msg("execute_request", content)
    client.shell_channel.send(message)
    reply, published = collect(client, message["header"]["msg_id"])
    assert reply["status"] == "error" and "user_expressions" in reply["evalue"]
    assert [m["content"]["ename"] for m in published if m["msg_type"] == "error"] == ["ValueError"]
    assert not dialer.state.lease.wanted
