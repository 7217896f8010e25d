"""Websockets of a real gateway with real kernels: whole and once, both ways, whatever a client does."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import time

import pytest
import requests
import websocket

from gateway.protocol import websocket as ws
from tests.integration.machine import until
from tests.integration.serving import Browser

PROTOCOLS = [None, ws.V1, ws.ELASTIC]
COUNTS = "import time\nfor i in range(12):\n    time.sleep(.15)\n    print(i, flush=True)"


@pytest.fixture(scope="module")
def kernel(gateway):
    with gateway.kernel(KERNEL_GPUS="0") as found:
        yield found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.case("R05")
def test_each_protocol_is_spoken_as_it_was_agreed(kernel, protocol):
    browser = kernel.open(protocol=protocol)
    assert browser.socket.getsubprotocol() == protocol
    assert browser.ask("kernel_info_request")["content"]["status"] == "ok"
    assert browser.run("print(6 * 7)").out == "42\n"


@pytest.mark.case("R05")
def test_a_protocol_that_nobody_speaks_is_not_accepted(gateway, kernel):
    with pytest.raises(websocket.WebSocketException):
        Browser(gateway, kernel.id, protocol="qa.unknown")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cell_that_was_sent_while_the_kernel_starts_runs_though_its_page_was_closed(gateway, protocol):
    with gateway.kernel(KERNEL_GPUS="0") as starting:
        page = starting.open(protocol=protocol)
        cell = page.begin("answer = 42; print('ran')")
        page.close()
        until(lambda: starting.state == "idle")
        again = starting.open(protocol=protocol, session=page.session)
        assert again.run("print(answer)").out == "42\n"
        shown = [m["content"]["text"] for m in again.messages if m["type"] == "stream" and m["parent"] == cell]
        assert shown in (["ran\n"], []), "at most once"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.case("R01")
def test_output_during_an_absence_comes_whole_and_once(kernel, protocol):
    first = kernel.open(protocol=protocol)
    first.run("1")
    cell = first.begin(COUNTS)
    first.wait(lambda m: m["type"] == "stream" and m["parent"] == cell)
    first.drop()
    first.until_closed()
    time.sleep(0.4)
    after = max((m["n"] for m in first.messages), default=0) if protocol == ws.ELASTIC else None
    second = kernel.open(protocol=protocol, session=first.session, after=after)
    second.wait(lambda m: m["type"] == "execute_reply" and m["parent"] == cell)
    second.wait(lambda m: m["parent"] == cell and m["content"].get("execution_state") == "idle")
    mine = [m for m in [*first.messages, *second.messages] if m["parent"] == cell and m["type"] == "stream"]
    if protocol != ws.ELASTIC:  # what a stock client had not acknowledged comes again; it is the same message
        mine = list({m["header"]["msg_id"]: m for m in mine}.values())
    assert "".join(m["content"]["text"] for m in mine) == "".join(f"{i}\n" for i in range(12))


def test_a_client_of_ours_may_send_again_what_it_is_not_sure_of(kernel):
    browser = kernel.open(protocol=ws.ELASTIC)
    browser.run("ran = 0")
    code = {"code": "ran += 1", "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
    for _ in range(3):
        browser._m = 1  # the same number again
        browser.send("execute_request", code, msg_id="same")
    browser.wait(lambda m: m["type"] == "execute_reply" and m["parent"] == "same")
    assert browser.run("print(ran)").out == "1\n"
    assert browser.numbers[0][0] == ws.ATTACHED
    until(lambda: (ws.ACK, 3) in browser.numbers)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.case("P03")
def test_binary_buffers_come_back_as_they_were_sent(kernel, protocol):
    browser = kernel.open(protocol=protocol)
    browser.run(
        "def opened(comm, message):\n"
        "    comm.on_msg(lambda m: comm.send({'n': len(m['buffers'])}, buffers=m['buffers']))\n"
        "get_ipython().kernel.comm_manager.register_target('echo', opened)"
    )
    comm = f"c-{protocol}"
    browser.send("comm_open", {"comm_id": comm, "target_name": "echo", "data": {}})
    buffers = (os.urandom(5 << 20), b"\0" * 10, b"")
    browser.send("comm_msg", {"comm_id": comm, "data": {}}, buffers=buffers)
    echo = browser.wait(lambda m: m["type"] == "comm_msg" and m["content"]["comm_id"] == comm)
    assert tuple(echo["buffers"]) == buffers


@pytest.mark.case("P01")
def test_a_hundred_megabytes_of_prints_arrive(kernel):
    browser = kernel.open()
    cell = browser.run("for i in range(100): print('x' * 1_000_000)")
    assert len(cell.out) == 100 * 1_000_001
    assert browser.run("print(1 + 1)").out == "2\n"


@pytest.mark.case("P05")
def test_text_of_all_kinds_comes_back_exactly(kernel):
    browser = kernel.open()
    text = "👩‍🔬 עברית 日本 e\u0301 \u2028 \x00 \ufeff end"
    assert browser.run(f"变量 = {text!r}\nprint(变量)").out == text + "\n"


@pytest.mark.parametrize(
    "code", ["print('\\udcc3')", "raise ValueError('\\ud800')", "'\\udfff'", "import sys; sys.stderr.write('\\udcff')"]
)
@pytest.mark.case("P05")
def test_a_lone_surrogate_harms_its_own_cell_at_most(kernel, code):
    browser = kernel.open()
    browser.run(code)
    assert browser.closed is None
    until(lambda: browser.run("print('alive')").out == "alive\n")


@pytest.mark.case("P06")
def test_malformed_frames_touch_nobody_else(gateway, kernel):
    good = kernel.open()
    good.run("1")
    cell = good.begin("import time\nfor i in range(30): time.sleep(.05)\nprint('survived')")
    base = json.loads(ws.encode_legacy("shell", [b'{"msg_id":"x","msg_type":"kernel_info_request"}', b"{}", b"{}", b"{}"]))
    log = len(gateway.log)
    frames = [
        "x",
        "[]",
        "null",
        "{}",
        json.dumps({**base, "channel": "nope"}),
        json.dumps({**base, "header": "s"}),
        "[" * 5000 + "]" * 5000,
        json.dumps({**base, "header": {**base["header"], "msg_type": 5}}),
        json.dumps({**base, "header": {**base["header"], "pad": "p" * 2_000_000}}),
        b"",
        b"\x00",
        os.urandom(300),
        b"\xff" * 16,
        b"\x00\x00\x00\x02\x00\x00\xff\xff\x00\x00\xff\xff",
    ]
    for protocol in PROTOCOLS:
        bad = kernel.open(protocol=protocol)
        for frame in frames:
            bad.send_raw(frame)
        assert bad.run("print('still here')").out in ("still here\n", "survived\nstill here\n")
    assert good.finish(cell).out == "survived\n"
    assert "Traceback" not in gateway.log[log:]
    assert len(gateway.log) - log < 5000, "no flood in the log"


@pytest.mark.case("P09")
def test_completion_and_help_answer_while_a_cell_runs_on_a_subshell(kernel):
    browser = kernel.open()
    browser.run("import time")
    subshell = browser.ask("create_subshell_request", channel="control")["content"]["subshell_id"]
    cell = browser.begin("time.sleep(2)")
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "execute_input")
    complete = {"code": "time.sl", "cursor_pos": 7}
    assert "sleep" in str(browser.ask("complete_request", complete, subshell_id=subshell)["content"]["matches"])
    assert not [m for m in browser.messages if m["parent"] == cell and m["type"] == "execute_reply"], "before the cell has ended"
    assert browser.ask("inspect_request", {**complete, "detail_level": 0}, subshell_id=subshell)["content"]["status"] == "ok"
    assert browser.ask("complete_request", complete, subshell_id="made-up")["content"]["status"] == "error"
    on_main = browser.send("complete_request", complete)
    browser.finish(cell)
    browser.wait(lambda m: m["type"] == "complete_reply" and m["parent"] == on_main)
    browser.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")


@pytest.mark.case("P09")
def test_a_subshell_from_before_a_restart_is_answered_with_an_error(gateway):
    with gateway.kernel(KERNEL_GPUS="0") as kernel:
        browser = kernel.open()
        browser.run("1")
        subshell = browser.ask("create_subshell_request", channel="control")["content"]["subshell_id"]
        assert kernel.call("POST", "/restart").ok
        old = browser.ask("complete_request", {"code": "pri", "cursor_pos": 3}, subshell_id=subshell)
        assert old["content"]["status"] == "error"


def test_input_is_asked_for_and_answered(kernel):
    browser = kernel.open()
    cell = browser.begin("print('hello', input('who? '))", allow_stdin=True)
    asked = browser.wait(lambda m: m["type"] == "input_request")
    assert asked["channel"] == "stdin"
    browser.send("input_reply", {"value": "world"}, channel="stdin")
    assert browser.finish(cell).out.endswith("hello world\n")


def test_two_browsers_see_the_same_kernel_and_only_their_own_replies(kernel):
    one, two = kernel.open(), kernel.open()
    cell = one.begin("print('seen by both')")
    one.finish(cell)
    two.wait(lambda m: m["type"] == "stream" and m["parent"] == cell)
    assert not [m for m in two.messages if m["type"] == "execute_reply"]


@pytest.mark.case("R03")
def test_an_unknown_kernel_is_a_plain_404_however_often_it_is_asked_for(gateway, kernel):
    good, statuses = kernel.open(), set()
    log = len(gateway.log)

    def ask() -> None:
        for _ in range(10):
            try:
                Browser(gateway, "11111111-2222-3333-4444-555555555555", read=False)
            except websocket.WebSocketBadStatusException as exc:
                statuses.add(exc.status_code)

    askers = [threading.Thread(target=ask) for _ in range(10)]
    for each in askers:
        each.start()
    while any(each.is_alive() for each in askers):
        assert good.run("print(1)").out == "1\n"
    assert statuses == {404}
    added = gateway.log[log:]
    assert "Traceback" not in added
    assert len(added.splitlines()) <= 100, "a line each"


@pytest.mark.case("R03")
def test_open_sockets_of_a_deleted_kernel_are_told_and_closed(gateway):
    with gateway.kernel() as kernel:
        browsers = [kernel.open(protocol=protocol) for protocol in PROTOCOLS]
        browsers[0].run("1")
        begun = time.monotonic()
        kernel.call("DELETE")
        for browser in browsers:
            assert browser.until_closed()[0] == ws.CLOSE_KERNEL_GONE
            assert browser.states()[-1] == "dead"
        assert time.monotonic() - begun < 5


@pytest.mark.case("X05")
def test_nobody_comes_in_without_the_token(gateway, kernel):
    for path in (
        "/api/kernels",
        "/api/kernelspecs",
        f"/api/kernels/{kernel.id}",
        "/metrics",
        "/kernelspecs/elastic/logo-64x64.png",
        "/api/gpu",
        "/api/gpu/policy",
        "/api/gpu/events",
        "/api/sessions",
        "/api/status",
    ):
        for headers in ({}, {"Authorization": "token wrong"}, {"Authorization": "token "}, {"Authorization": gateway.token}):
            for query in ("", "?token=wrong"):
                response = requests.get(gateway.url + path + query, headers=headers, timeout=60)
                assert response.status_code in (401, 403, 404), (path, headers, query)
                assert gateway.token not in response.text
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        Browser(gateway, kernel.id, token=False)
    assert requests.get(f"{gateway.url}/api/kernels?token={gateway.token}", timeout=60).ok
    assert gateway.token not in gateway.log


@pytest.mark.parametrize("path", ["/api/kernels", "/api/sessions", "/api/kernelspecs", "/api/gpu"])
@pytest.mark.case("X05")
def test_a_browser_may_ask_beforehand_from_an_allowed_origin_only(gateway, path):
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    good = requests.options(gateway.url + path, headers=ask | {"Origin": "https://lab.example.com"}, timeout=60)
    assert good.status_code < 300
    assert good.headers["Access-Control-Allow-Origin"] == "https://lab.example.com"
    assert "authorization" in good.headers["Access-Control-Allow-Headers"]
    bad = requests.options(gateway.url + path, headers=ask | {"Origin": "https://evil.example.net"}, timeout=60)
    assert "Access-Control-Allow-Origin" not in bad.headers


def test_a_reader_that_stops_reading_slows_nobody_and_catches_up(kernel):
    lazy, good = kernel.open(read=False), kernel.open()
    code = "import base64, os\nfor i in range(40): print(base64.b64encode(os.urandom(750_000)).decode()[:1_000_000])"
    assert len(good.run(code).out) == 40 * 1_000_001, "the other one is read from as fast as it reads"
    assert good.run("print(1)").out == "1\n"
    lazy.drop()
    again = kernel.open(session=lazy.session)
    total = sum(len(m["content"]["text"]) for m in good.messages if m["type"] == "stream")
    until(lambda: sum(len(m["content"]["text"]) for m in list(again.messages) if m["type"] == "stream") >= total * 0.9)


def test_random_bytes_of_a_picture_pass(kernel):
    browser = kernel.open()
    cell = browser.run(
        "import os, base64; from IPython.display import display; raw = os.urandom(3_000_000)\n"
        "display({'image/png': base64.b64encode(raw).decode()}, raw=True)\nimport hashlib; print(hashlib.sha1(raw).hexdigest())"
    )
    picture = next(data["image/png"] for data in cell.data if "image/png" in data)
    assert hashlib.sha1(base64.b64decode(picture)).hexdigest() == cell.out.strip()
