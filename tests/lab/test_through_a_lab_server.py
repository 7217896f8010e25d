"""A browser, a real jupyter_server with our extension, and a gateway that comes and goes."""

from __future__ import annotations

import asyncio

import pytest
from tornado.httpclient import HTTPClientError

from gateway.lab.notices import AWAY
from gateway.protocol import websocket as ws
from tests.lab.conftest import Lab, eventually, start_kernel
from tests.lab.double import Gateway, message

GATEWAYS = pytest.mark.parametrize("gateway_protocol", [ws.ELASTIC, ws.V1, None], ids=["elastic", "v1-gateway", "legacy-gateway"])
BROWSERS = pytest.mark.parametrize("browser_protocol", [ws.V1, None], ids=["v1-browser", "legacy-browser"])


@GATEWAYS
@BROWSERS
@pytest.mark.case("R05")
def test_text_and_binary_pass_both_ways_whatever_the_two_ends_speak(story, gateway_protocol, browser_protocol):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id, protocol=browser_protocol)
        page.send("comm_msg", {"data": "é"}, buffers=(b"\xff\x00\x01", b""))
        content, buffers = await page.until("comm_msg")
        assert content == {"echo": True}
        assert buffers == [b"\xff\x00\x01", b""]
        page.send("execute_request", {"code": "1"})
        assert (await page.until("execute_reply"))[0]["code"] == "1"

    story(tell, gateway_protocol)


@GATEWAYS
def test_a_message_beyond_ten_megabytes_passes_both_ways(story, gateway_protocol):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        blob = bytes(range(256)) * (12 << 12)
        page.send("comm_msg", {}, buffers=(blob,))
        assert (await page.until("comm_msg"))[1] == [blob]

    story(tell, gateway_protocol)


def test_a_gateway_killed_in_mid_stream_costs_no_line_and_repeats_none(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "first"})
        await page.until("execute_reply")
        reading = asyncio.ensure_future(page.lines("line 2999"))
        for i in range(3000):
            kernel.line(f"line {i}")
            if i % 1000 == 500:
                await asyncio.sleep(0.01)
                await gateway.kill()
                page.send("execute_request", {"code": f"sent at {i}"})
                gateway.start()
        assert await reading == [f"line {i}" for i in range(3000)]
        await eventually(lambda: len(kernel.received) == 4)
        assert kernel.codes == ["first", "sent at 500", "sent at 1500", "sent at 2500"]

    story(tell)


@GATEWAYS
def test_cells_sent_while_the_gateway_is_away_run_once_it_is_back(story, gateway_protocol):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        await gateway.kill()
        await page.until("status")  # the page has been told, so the Lab server knows
        for i in range(1, 4):
            page.send("execute_request", {"code": str(i)})
        gateway.start()
        for i in range(1, 4):
            assert (await page.until("execute_reply"))[0]["code"] == str(i)
        assert kernel.codes == ["0", "1", "2", "3"]

    story(tell, gateway_protocol)


@pytest.mark.case("R01")
def test_a_page_whose_network_breaks_goes_on_where_it_was(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        for i in range(2000):
            kernel.line(f"line {i}")
        before = await page.lines("line 700")
        await eventually(lambda: kernel.sessions[page.session_id].acked > 650)
        page.vanish()
        back = await lab.page(kernel.id, page.session_id)
        after = await back.lines("line 1999")
        first = int(after[0].split()[1])
        assert before == [f"line {i}" for i in range(701)]
        assert 600 < first <= 701  # a browser may be sent again what it read and could not yet confirm, and nothing else
        assert after == [f"line {i}" for i in range(first, 2000)]

    story(tell)


def test_a_page_that_reads_nothing_holds_no_more_than_its_credit(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        session = kernel.sessions[page.session_id]
        for i in range(200):
            kernel.publish("iopub", message("stream", {"name": "stdout", "text": f"{i} " + "x" * 100_000}))
        await asyncio.sleep(0.2)
        assert session.newest - session.acked > 100, "the browser confirmed what it never read"
        texts = [(await page.until("stream"))[0]["text"].split()[0] for _ in range(200)]
        assert texts == [str(i) for i in range(200)]

    story(tell)


@GATEWAYS
def test_the_page_is_told_that_the_gateway_is_away_and_what_is_true_when_it_is_back(story, gateway_protocol):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        kernel.publish("iopub", message("status", {"execution_state": "busy"}))
        assert (await page.until("status"))[0] == {"execution_state": "busy"}
        await gateway.kill()
        assert (await page.until("status"))[0] == {"execution_state": AWAY}
        gateway.start()
        assert (await page.until("status"))[0] == {"execution_state": "busy"}

    story(tell, gateway_protocol)


def test_what_looks_like_a_path_in_some_output_leads_nowhere_on_the_users_own_machine(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        resolved = await lab.rest("GET", f"/api/resolvePath?path=/etc&kernel={kernel.id}")
        assert [each for each in resolved["resolved"] if each["scope"] == "kernel"] == []

    story(tell)


def test_a_kernel_that_was_shut_down_is_dead_for_its_page(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        kernel.sessions[page.session_id].socket.close(ws.CLOSE_KERNEL_GONE, "shut down")
        assert (await page.until("status"))[0] == {"execution_state": "dead"}
        assert await page.read() is None
        assert page.socket.close_code == ws.CLOSE_KERNEL_GONE

    story(tell)


@GATEWAYS
def test_a_kernel_that_the_gateway_no_longer_knows_is_dead_for_its_page(story, gateway_protocol):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        await gateway.kill()
        del gateway.kernels[kernel.id]
        gateway.start()
        state = {"execution_state": AWAY}
        while state == {"execution_state": AWAY}:
            state = (await page.until("status"))[0]
        assert state == {"execution_state": "dead"}
        assert await page.read() is None

    story(tell, gateway_protocol)


def test_a_cell_that_can_not_be_kept_ends_with_an_error(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        await gateway.kill()
        await page.until("status")
        page.send("execute_request", {"code": "kept"})
        page.send("execute_request", {"code": "x" * (1 << 20)})
        content, _ = await page.until("execute_reply")
        assert content["status"] == "error"
        assert "run the cell again" in content["evalue"]
        gateway.start()
        assert (await page.until("execute_reply"))[0]["code"] == "kept"

    story(tell)


def test_a_page_that_leaves_a_gateway_that_is_away_has_its_cells_sent_all_the_same(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        await gateway.kill()
        await page.until("status")
        page.send("execute_request", {"code": "1"})
        page.send("comm_msg", {})
        page.socket.close()
        gateway.start()
        await eventually(lambda: len(kernel.received) == 3)
        await eventually(lambda: not gateway.sockets)  # then nobody needs the gateway's websocket any more

    story(tell)


def test_frames_that_no_one_can_read_end_nothing(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        page = await lab.page(kernel.id)
        for rubbish in (b"", b"\x00" * 5, b"\xff" * 64, b"\x02" + b"\x00" * 200):
            page.socket.write_message(rubbish, binary=True)
        page.socket.write_message("{")
        page.send("execute_request", {"code": "0"})
        await page.until("execute_reply")
        for socket in gateway.sockets:
            for rubbish in (b"", b"\x07", b"\x01\x00", b"\x01" + b"\xff" * 40):
                socket.write_message(rubbish, binary=True)
        page.send("execute_request", {"code": "1"})
        assert (await page.until("execute_reply"))[0]["code"] == "1"

    story(tell)


def test_kernels_and_kernelspecs_are_listed_as_last_known_while_the_gateway_is_away(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        assert kernel.id in [model["id"] for model in await lab.rest("GET", "/api/kernels")]
        specs = (await lab.rest("GET", "/api/kernelspecs"))["kernelspecs"]
        await gateway.kill()
        assert kernel.id in [model["id"] for model in await lab.rest("GET", "/api/kernels")]
        assert (await lab.rest("GET", "/api/kernelspecs"))["kernelspecs"] == specs
        gateway.start()
        assert kernel.id in [model["id"] for model in await lab.rest("GET", "/api/kernels")]

    story(tell)


def test_a_kernel_that_the_gateway_says_is_gone_leaves_the_list(story):
    async def tell(lab: Lab, gateway: Gateway) -> None:
        kernel = await start_kernel(lab, gateway)
        del gateway.kernels[kernel.id]
        assert kernel.id not in [model["id"] for model in await lab.rest("GET", "/api/kernels")]
        with pytest.raises(HTTPClientError, match="404"):
            await lab.rest("GET", f"/api/kernels/{kernel.id}")

    story(tell)
