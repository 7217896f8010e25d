"""A kernel that is through with a cell and never answers it keeps neither its GPU nor the front end waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient

from gateway.protocol.model import KernelState, Phase

from .supervised import PATIENCE, Supervised, collect

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


def states(client: BlockingKernelClient, msg_id: str) -> list[str]:
    """Those of one request that have come."""
    told = []
    while client.iopub_channel.socket.poll(500):
        message = client.get_iopub_msg(timeout=1)
        if message["msg_type"] == "status" and message["parent_header"].get("msg_id") == msg_id:
            told.append(message["content"]["execution_state"])
    return told


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
    assert states(client, lost) == ["busy", "idle"], "the kernel itself has said that it is idle"
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


def again(client: BlockingKernelClient, message: dict[str, Any]) -> None:
    """The same bytes as before."""
    client.shell_channel.socket.send_multipart(client.session.serialize(message))


def settled(state: KernelState) -> bool:
    return state.ready and not state.in_flight and not state.held and not state.lease.executing


def test_a_cell_that_is_sent_twice_runs_once_and_the_second_is_answered_at_once(own: Supervised) -> None:
    dialer, client = own.dial(), own.client()
    content = {"code": "%%gpu\nruns = globals().get('runs', 0) + 1; print(runs)", "silent": False, "user_expressions": {}}
    message = client.session.msg("execute_request", content)
    again(client, message)
    again(client, message)  # while the first waits: its answer is the answer to both
    dialer.grant()
    reply, published = collect(client, message["header"]["msg_id"])
    assert reply["status"] == "ok" and [m["content"]["text"] for m in published if m["msg_type"] == "stream"] == ["1\n"]
    again(client, message)
    reply = client.get_shell_msg(timeout=PATIENCE)
    assert reply["parent_header"]["msg_id"] == message["header"]["msg_id"]
    assert reply["content"]["ename"] == "RepeatedRequest" and "msg_id" in reply["content"]["evalue"]
    dialer.until(settled)
    done, published = collect(client, client.execute("print(runs)"))
    assert done["status"] == "ok" and [m["content"]["text"] for m in published if m["msg_type"] == "stream"] == ["1\n"]


def test_another_cell_under_the_id_of_one_that_runs_is_refused_and_the_first_still_counts_as_executing(own: Supervised) -> None:
    dialer, client, other = own.dial(), own.client(), own.client()
    runs = client.execute("%%gpu\ninput()", allow_stdin=True)
    dialer.grant()
    client.get_stdin_msg(timeout=PATIENCE)
    message = other.session.msg("execute_request", {"code": "%%gpu\n2", "silent": False, "user_expressions": {}})
    message["header"]["msg_id"] = message["msg_id"] = runs
    again(other, message)
    assert other.get_shell_msg(timeout=PATIENCE)["content"]["ename"] == "RepeatedRequest"
    assert dialer.until(lambda s: s.in_flight).lease.executing
    client.input("go on")
    assert collect(client, runs)[0]["status"] == "ok"
    dialer.until(settled)


@pytest.mark.parametrize("later", [True, False])
def test_a_gpu_cell_that_the_kernel_drops_without_a_word_is_closed_and_gives_the_gpu_up(own: Supervised, later: bool) -> None:
    dialer, client = own.dial(), own.client()
    assert client.execute("%%gpu\n1")
    dialer.grant()
    message = client.session.msg("execute_request", {"code": "%%gpu\n1", "silent": False, "user_expressions": {}})
    message["header"]["version"] = "none that there is"
    again(client, message)
    sent = [message["header"]["msg_id"], *([client.execute("%%gpu\n2")] if later else [])]
    replies: dict[str, dict[str, Any]] = {}
    while not replies.keys() >= set(sent):
        reply = client.get_shell_msg(timeout=PATIENCE)
        replies[reply["parent_header"]["msg_id"]] = reply["content"]
    assert replies[sent[0]]["ename"] == "NoReply"
    dialer.until(settled)
