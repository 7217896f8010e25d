"""One browser's websocket, from the handshake to the end, without a network."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import traitlets

from gateway.protocol import websocket as ws
from gateway.server.connection import EARLY_BYTES, TRY_AGAIN, ElasticWebsocketConnection
from gateway.server.messages import status

from .doubles import Kernel, Link, Socket, reply, request, turn

PROTOCOLS = [None, ws.V1, ws.ELASTIC]


class Connection(ElasticWebsocketConnection):
    websocket_handler = traitlets.Any()


def story(
    protocol: str | None,
    tell: Callable[[Connection, Socket, Kernel], Coroutine[Any, Any, None]],
    link: Link | None = None,
    dead: bool = False,
    after: int | None = None,
) -> None:
    """Run ``tell(connection, socket, kernel)`` on a loop of its own, with an open websocket."""

    async def run() -> None:
        kernel, socket = Kernel(link, dead), Socket(protocol)
        connection = Connection(parent=kernel, websocket_handler=socket)
        connection.session_id, connection.after = "s1", after
        connection.open()
        await tell(connection, socket, kernel)

    asyncio.run(run())


def frame(protocol: str | None, parts: list[bytes], channel: str = "shell", m: int = 1) -> str | bytes:
    if protocol == ws.ELASTIC:
        return ws.encode_message(m, channel, parts)
    return ws.encode_v1(channel, parts) if protocol == ws.V1 else ws.encode_legacy(channel, parts)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_reaches_the_line_and_its_answer_the_browser(protocol):
    link = Link()

    async def tell(connection, socket, kernel):
        connection.attached(0, 0, 0)
        connection.handle_incoming_message(frame(protocol, request()))
        connection.deliver(1, "shell", reply())
        await turn()
        assert link.sent()[0][0] == "shell"
        assert json.loads(link.sent()[0][1][0])["msg_id"] == "m1"
        assert link.sent()[0][2] == (1 if protocol == ws.ELASTIC else None)
        assert socket.messages()[0] | {"buffers": []} == {
            "channel": "shell", "type": "execute_reply", "parent": "m1", "content": {"status": "ok"}, "buffers": []
        }  # fmt: skip

    story(protocol, tell, link)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_binary_buffers_pass_both_ways_untouched(protocol):
    link, buffers = Link(), [os.urandom(70_000), b"\0" * 10, b""]

    async def tell(connection, socket, kernel):
        connection.handle_incoming_message(frame(protocol, [*request("comm_msg"), *buffers]))
        connection.deliver(1, "iopub", [*reply(msg_type="comm_msg"), *buffers])
        await turn()
        assert link.sent()[0][1][4:] == buffers
        assert socket.messages()[0]["buffers"] == buffers

    story(protocol, tell, link)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_not_utf8_is_made_readable(protocol):
    async def tell(connection, socket, kernel):
        connection.deliver(1, "iopub", [*reply(msg_type="stream")[:3], b'{"text":"a\xed\xb3\x83b"}'])
        await turn()
        assert socket.messages()[0]["content"]["text"].replace("\ufffd", "") == "ab"

    story(protocol, tell, Link())


def test_what_is_said_in_one_turn_leaves_in_one_write():
    async def tell(connection, socket, kernel):
        for n in range(1, 21):
            connection.deliver(n, "iopub", reply(msg_type="stream"))
        assert socket.stream.written == []
        await turn()
        assert len(socket.stream.written) == 1
        assert len(socket.messages()) == 20

    story(ws.V1, tell, Link())


@pytest.mark.parametrize("protocol", [None, ws.V1])
def test_a_stock_client_acknowledges_by_its_pong(protocol):
    link = Link()

    async def tell(connection, socket, kernel):
        connection.attached(10, 0, 0)
        connection.deliver(11, "iopub", reply())
        connection.deliver(12, "iopub", reply())
        await turn()
        connection.deliver(13, "iopub", reply())
        await turn()
        assert len(socket.pings()) == 1, "at most one ping is under way"
        connection.pong(socket.pings()[0])
        assert link.told[-1] == ("ack", 12)
        await turn()
        assert len(socket.pings()) == 2
        connection.pong(socket.pings()[1])
        assert link.told[-1] == ("ack", 13)
        await turn()
        assert len(socket.pings()) == 2, "nothing is left to acknowledge"

    story(protocol, tell, link)


def test_a_pong_from_before_a_new_attachment_acknowledges_nothing():
    link = Link()

    async def tell(connection, socket, kernel):
        connection.deliver(500, "iopub", reply())
        await turn()
        connection.attach(link)
        connection.pong(socket.pings()[0])
        connection.pong(b"keepalive")
        assert not [told for told in link.told if told[0] == "ack"]

    story(ws.V1, tell, link)


def test_a_client_of_ours_numbers_and_acknowledges_by_itself():
    link = Link()

    async def tell(connection, socket, kernel):
        assert link.told == [("attach", "s1", 7)]
        connection.attached(7, 2, 5)
        connection.deliver(8, "iopub", reply())
        connection.taken(4)
        connection.taken(6)
        await turn()
        assert socket.numbered() == [(ws.ATTACHED, 7, 2, 5), (ws.MESSAGE, 8), (ws.ACK, 6)]
        assert socket.pings() == []
        connection.handle_incoming_message(ws.encode_ack(8))
        assert link.told[-1] == ("ack", 8)

    story(ws.ELASTIC, tell, link, after=7)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_handshake_does_not_wait_for_a_kernel_that_starts(protocol):
    link = Link()

    async def tell(connection, socket, kernel):
        await turn()
        assert socket.messages()[0]["content"] == {"execution_state": "starting"}
        connection.handle_incoming_message(frame(protocol, request("kernel_info_request")))
        connection.handle_incoming_message(frame(protocol, request(msg_id="m2"), m=2))
        connection.attach(link)
        assert link.told[0] == ("attach", "s1", None)
        if protocol == ws.ELASTIC:
            assert not link.sent(), "it sends everything again once it is attached"
        else:
            assert [json.loads(parts[0])["msg_id"] for _, parts, _ in link.sent()] == ["m1", "m2"]

    story(protocol, tell)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_start_that_fails_closes_every_request_with_the_reason_but_for_kernel_info(protocol):
    async def tell(connection, socket, kernel):
        connection.handle_incoming_message(frame(protocol, request()))
        connection.handle_incoming_message(frame(protocol, request("inspect_request", "m2"), m=2))
        connection.handle_incoming_message(frame(protocol, request("kernel_info_request", "m3"), m=3))
        kernel.dead = True
        connection.fail("LaunchError", "it has no legs")
        await turn()
        said = [(m["type"], m["parent"], m["content"].get("evalue") or m["content"].get("execution_state")) for m in socket.messages()]
        assert said[1:] == [
            ("error", "m1", "it has no legs"),
            ("execute_reply", "m1", "it has no legs"),
            ("status", "m1", "idle"),
            ("inspect_reply", "m2", "it has no legs"),
            ("status", "m2", "idle"),
            ("status", None, "dead"),
        ]
        if protocol == ws.ELASTIC:
            assert (ws.ACK, 3) in socket.numbered()

    story(protocol, tell)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cell_sent_to_a_dead_kernel_is_answered(protocol):
    async def tell(connection, socket, kernel):
        connection.handle_incoming_message(frame(protocol, request(msg_id="late")))
        await turn()
        assert ("execute_reply", "late") in [(m["type"], m["parent"]) for m in socket.messages()]

    story(protocol, tell, dead=True)


def test_stop_before_the_kernel_is_up_ends_the_cells_that_wait():
    link = Link()

    async def tell(connection, socket, kernel):
        connection.handle_incoming_message(frame(None, request("kernel_info_request", "info")))
        connection.handle_incoming_message(frame(None, request(msg_id="cell")))
        connection.cancel_early("KeyboardInterrupt", "Interrupted.")
        connection.attach(link)
        await turn()
        assert ("error", "cell") in [(m["type"], m["parent"]) for m in socket.messages()]
        assert [json.loads(parts[0])["msg_id"] for _, parts, _ in link.sent()] == ["info"]

    story(None, tell)


def test_a_browser_that_sends_too_much_too_early_is_told_to_come_back():
    async def tell(connection, socket, kernel):
        big = b'{"code":"' + b"x" * (EARLY_BYTES // 2) + b'"}'
        for m in range(3):
            connection.handle_incoming_message(frame(ws.V1, [*request()[:3], big], m=m))
        assert socket.closed[0] == TRY_AGAIN
        assert kernel.gone == [connection]

    story(ws.V1, tell)


def test_a_lost_supervisor_closes_open_cells_but_not_answered_ones():
    link = Link()

    async def tell(connection, socket, kernel):
        for name in ("a", "b"):
            connection.handle_incoming_message(frame(None, request(msg_id=name)))
        connection.deliver(1, "shell", reply("a"))
        connection.lost("it is gone")
        connection.fail("SupervisorLost", "it is gone")
        await turn()
        failed = [m["parent"] for m in socket.messages() if m["type"] == "error"]
        assert failed == ["b"]
        assert socket.messages()[-1]["content"] == {"execution_state": "dead"}

    story(None, tell, link)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_browser_of_a_deleted_kernel_is_told_and_closed(protocol):
    link = Link()

    async def tell(connection, socket, kernel):
        connection.end(ws.CLOSE_KERNEL_GONE, "it was shut down", dead=True)
        assert socket.messages()[-1]["content"] == {"execution_state": "dead"}
        assert socket.closed == (ws.CLOSE_KERNEL_GONE, "it was shut down")
        assert kernel.gone == [connection]
        assert link.told[-1] == ("detach", "s1", False)
        connection.disconnect()
        assert kernel.gone == [connection], "once is enough"

    story(protocol, tell, link)


def test_a_slow_reader_is_cut_with_a_code_of_its_own():
    async def tell(connection, socket, kernel):
        connection.cut("slow_reader")
        assert socket.closed[0] == ws.CLOSE_SLOW_READER

    story(None, tell, Link())


def test_a_broken_line_keeps_the_browser_and_what_it_sends():
    link = Link()

    async def tell(connection, socket, kernel):
        connection.cut("line_broken")
        assert socket.closed is None
        connection.handle_incoming_message(frame(None, request()))
        assert link.sent() == []
        connection.attach(link)
        assert len(link.sent()) == 1

    story(None, tell, link)


def test_a_browser_without_a_session_name_leaves_no_place_behind():
    link = Link()

    async def tell(connection, socket, kernel):
        connection.named = False
        connection.disconnect()
        assert link.told[-1] == ("detach", "s1", True)

    story(None, tell, link)


def test_messages_that_the_server_does_not_allow_are_dropped():
    link = Link()

    async def tell(connection, socket, kernel):
        kernel.parent.allowed_message_types = ["kernel_info_request"]
        connection.handle_incoming_message(frame(None, request()))
        connection.handle_incoming_message(frame(None, request("kernel_info_request")))
        assert len(link.sent()) == 1

    story(None, tell, link)


def mangled() -> list[str | bytes]:
    base = json.loads(ws.encode_legacy("shell", request("kernel_info_request")))

    def other(**change: Any) -> str:
        return json.dumps({**base, **change})

    without = [json.dumps({k: v for k, v in base.items() if k != left_out}) for left_out in ("header", "content")]
    return [
        "x", "[]", "null", "{}", '"s"', *without, other(channel="nope"), other(channel=7), other(channel="iopub"), other(header="s"),
        other(header={}), other(content=[]), other(parent_header=3), other(header={**base["header"], "msg_type": 5}),
        other(header={**base["header"], "msg_id": ""}), other(header={**base["header"], "pad": "p" * 2_000_000}), "[" * 5000 + "]" * 5000,
        '{"channel":"shell","header":', b"", b"\x00", os.urandom(300), b"\xff" * 16, b"\x00\x00\x00\x02\x00\x00\xff\xff\x00\x00\xff\xff",
        b"\x01", b"\x02\x00", b"\x03" + b"\0" * 24, b"\x01" + b"\0" * 100,
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_malformed_message_is_dropped_and_the_next_one_passes(protocol, caplog):
    link = Link()

    async def tell(connection, socket, kernel):
        for bad in mangled():
            connection.handle_incoming_message(bad)
        assert link.sent() == []
        connection.handle_incoming_message(frame(protocol, request()))
        assert len(link.sent()) == 1
        assert socket.closed is None

    story(protocol, tell, link)
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) <= 1, "no flood in the log"
    assert all(len(r.getMessage()) < 300 for r in caplog.records)


PADDED = {"msg_id": "m1", "msg_type": "execute_request", "session": "s", "pad": "p" * 2_000_000, "date": "d" * 1000}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("at", "part"), [(0, json.dumps(PADDED).encode()), (1, b"3"), (2, b'"s"'), (3, b"[1]")], ids=["header", "parent", "metadata", "content"]
)
def test_the_sender_of_a_request_that_cannot_be_read_is_told_so(protocol, at, part):
    link, parts = Link(), request()
    parts[at] = part

    async def tell(connection, socket, kernel):
        connection.handle_incoming_message(frame(protocol, parts))
        await turn()
        assert link.sent() == []
        error, answer, idle = socket.messages()
        assert (error["type"], answer["type"], answer["channel"]) == ("error", "execute_reply", "shell")
        assert (answer["content"]["status"], answer["content"]["ename"]) == ("error", "BadRequest")
        assert (idle["type"], idle["content"]) == ("status", {"execution_state": "idle"})
        assert {each["parent"] for each in (error, answer, idle)} == {"m1"}
        assert sum(len(payload) for _, payload in socket.frames()) < 4096, "what was too large is not sent back"

    story(protocol, tell, link)


def test_a_request_that_cannot_be_read_ends_none_of_the_same_id():
    async def tell(connection, socket, kernel):
        connection.handle_incoming_message(frame(ws.V1, request()))
        connection.handle_incoming_message(frame(ws.V1, [*request()[:3], b"[]"]))
        await turn()
        assert socket.messages() == []

    story(ws.V1, tell, Link())


@pytest.mark.parametrize("msg_id", ["", 7, None, "m" * 1000])
def test_who_cannot_be_named_is_not_answered(msg_id):
    async def tell(connection, socket, kernel):
        connection.handle_incoming_message(frame(ws.V1, [json.dumps({**PADDED, "msg_id": msg_id}).encode(), b"{}", b"{}", b"{}"]))
        await turn()
        assert socket.messages() == []

    story(ws.V1, tell, Link())


def test_what_the_gateway_says_carries_the_kernels_own_session_id() -> None:
    async def tell(connection: Connection, socket: Socket, kernel: Kernel) -> None:
        kernel.spoken = "of-the-kernel"
        connection.say(status("restarting"))
        await turn()
        _, parts = ws.decode_v1(socket.frames()[-1][1])
        assert json.loads(bytes(parts[0]))["session"] == "of-the-kernel"

    story(ws.V1, tell, Link())


def test_a_page_that_is_left_gives_up_its_place_at_once() -> None:
    async def tell(connection: Connection, socket: Socket, kernel: Kernel) -> None:
        socket.close_code = 1001
        connection.disconnect()

    link = Link()
    story(ws.V1, tell, link)
    assert ("detach", "s1", True) in link.told
