"""The numbers of a line: what is sent again, what is dropped, and how two ends that have forgotten each other go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.lab.line import Line, Patience
from gateway.protocol import websocket as ws
from gateway.protocol.wire import Part, loads
from tests.lab.double import message

PATIENCE = Patience(retry_first=0, retry_max=0, notice_after=1000, gone_after=0, keep=1000, outbox_bytes=1 << 20)


class FakeSocket:
    """The gateway's websocket, at whose other end the test stands."""

    selected_subprotocol = ws.ELASTIC

    def __init__(self, after: int | None) -> None:
        self.after = after
        self.close_code: int | None = None
        self.close_reason = None
        self.written: list[tuple[int, Any]] = []
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def read_message(self) -> bytes | None:
        return await self.frames.get()

    def write_message(self, frame: bytes, binary: bool) -> asyncio.Future[None]:
        _, (number, *_), body = ws.decode_elastic(frame)
        self.written.append((number, "ack" if body is None else loads(ws.decode_v1(body)[1][3])["code"]))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        self.close_code = self.close_code or code
        self.frames.put_nowait(None)

    def lose(self, code: int | None = None) -> None:
        self.close_code = code
        self.frames.put_nowait(None)

    def attached(self, n: int, seen: int, lost: int = 0) -> None:
        self.frames.put_nowait(ws.encode_attached(n, lost, seen))

    def says(self, n: int, text: str) -> None:
        self.frames.put_nowait(ws.encode_message(n, "iopub", message("stream", {"text": text})))


class FakePage:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.closed: int | None = None

    def deliver(self, n: int | None, channel: str, parts: Sequence[Part]) -> Awaitable[None] | None:
        content = loads(parts[3])
        self.texts.append(content.get("text") or content.get("execution_state") or content["status"])
        return None

    def close(self, code: int, reason: str) -> None:
        self.closed = code


class Stage:
    """A line, its page, and every socket it has dialled."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self.sockets: list[FakeSocket] = []
        self.ended = False
        self.page = FakePage()

        async def dial(after: int | None) -> Any:
            self.sockets.append(FakeSocket(after))
            return self.sockets[-1]

        self.line = Line(dial, patience, logging.getLogger("test"), lambda line: setattr(self, "ended", True))
        self.line.open(self.page)

    async def socket(self, number: int) -> FakeSocket:
        while len(self.sockets) < number:
            await asyncio.sleep(0)
        return self.sockets[number - 1]

    def send(self, code: str) -> None:
        self.line.send("shell", message("execute_request", {"code": code}))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def tell(story: Callable[[Stage], Awaitable[None]], patience: Patience = PATIENCE) -> None:
    async def told() -> None:
        stage = Stage(patience)
        await story(stage)
        stage.line.end()

    asyncio.run(told())


def test_what_the_gateway_has_not_acknowledged_is_sent_again_and_nothing_else():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(0, seen=0)
        await settle()
        for code in "abc":
            stage.send(code)
        assert first.written == [(1, "a"), (2, "b"), (3, "c")]
        first.lose()
        second = await stage.socket(2)
        second.attached(0, seen=2)
        await settle()
        assert second.written == [(3, "c")]

    tell(story)


def test_a_message_that_comes_again_is_not_shown_again():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(10, seen=0)
        first.says(11, "one")
        first.says(12, "two")
        await settle()
        first.lose()
        second = await stage.socket(2)
        assert second.after == 10  # nothing was confirmed by the browser
        second.attached(10, seen=0)
        for n, text in ((11, "one"), (12, "two"), (13, "three")):
            second.says(n, text)
        await settle()
        assert stage.page.texts == ["one", "two", "three"]

    tell(story)


def test_a_page_that_comes_back_is_sent_what_it_has_not_confirmed():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(0, seen=0)
        first.says(1, "one")
        first.says(2, "two")
        await settle()
        stage.line.taken(1)
        stage.line.leave(stage.page, 1006)
        stage.page = FakePage()
        stage.line.open(stage.page)
        second = await stage.socket(2)
        assert second.after == 1
        second.attached(1, seen=0)
        second.says(2, "two")
        await settle()
        assert stage.page.texts == ["two"]

    tell(story)


def test_what_the_browser_confirms_is_acknowledged():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(0, seen=0)
        first.says(1, "one")
        await settle()
        stage.line.taken(1)
        assert first.written == [(1, "ack")]

    tell(story)


def test_a_gateway_that_has_forgotten_the_session_is_told_everything_unacknowledged_under_new_numbers():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(40, seen=0)
        first.says(41, "old")
        await settle()
        stage.line.taken(41)
        for code in "abc":
            stage.send(code)
        first.frames.put_nowait(ws.encode_ack(2))
        await settle()
        first.lose()
        second = await stage.socket(2)
        second.attached(0, seen=0)
        second.says(1, "new")
        await settle()
        assert second.written == [(1, "c")]
        assert stage.page.texts == ["old", "new"]

    tell(story)


def test_a_lab_server_that_has_forgotten_the_session_goes_on_after_the_gateways_number():
    async def story(stage: Stage) -> None:
        stage.send("a")
        first = await stage.socket(1)
        await settle()
        first.attached(7, seen=17)
        await settle()
        stage.send("b")
        assert first.written[-2:] == [(18, "a"), (19, "b")]

    tell(story)


def test_requests_reach_a_gateway_whose_kernel_has_not_come_up_yet():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        await settle()
        stage.send("a")
        assert first.written == [(1, "a")]

    tell(story)


def test_the_gateways_own_words_have_no_number_and_pass():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(5, seen=0)
        first.says(0, "starting")
        first.says(0, "still starting")
        await settle()
        assert stage.page.texts == ["starting", "still starting"]

    tell(story)


def test_a_reader_that_was_too_slow_catches_up_before_the_gateway_is_dialled_again():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(0, seen=0)
        first.says(1, "one")
        await settle()
        first.lose(ws.CLOSE_SLOW_READER)
        await settle()
        assert len(stage.sockets) == 1
        stage.line.taken(1)
        assert (await stage.socket(2)).after == 1

    tell(story)


def test_a_page_that_was_closed_for_good_is_said_to_be():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(0, seen=0)
        await settle()
        stage.line.leave(stage.page, 1001)
        assert first.close_code == 1001

    tell(story)


def test_a_second_page_of_a_session_takes_over_from_the_first():
    async def story(stage: Stage) -> None:
        (await stage.socket(1)).attached(0, seen=0)
        await settle()
        before, stage.page = stage.page, FakePage()
        stage.line.open(stage.page)
        stage.line.leave(before, None)
        second = await stage.socket(2)
        second.attached(0, seen=0)
        second.says(1, "one")
        await settle()
        assert (before.texts, before.closed, stage.page.texts) == ([], 1001, ["one"])

    tell(story)


def test_a_kernel_that_is_gone_is_shown_dead_and_its_page_closed():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(0, seen=0)
        await settle()
        first.lose(ws.CLOSE_KERNEL_GONE)
        await settle()
        assert (stage.page.texts, stage.page.closed, stage.ended) == (["dead"], ws.CLOSE_KERNEL_GONE, True)

    tell(story)


def test_a_line_that_nobody_comes_back_to_ends():
    async def story(stage: Stage) -> None:
        (await stage.socket(1)).attached(0, seen=0)
        await settle()
        stage.line.leave(stage.page, 1006)
        await asyncio.sleep(0.01)
        assert stage.ended

    tell(story, Patience(retry_first=0, retry_max=0, notice_after=1000, gone_after=0, keep=0, outbox_bytes=1))


def test_a_far_end_that_attaches_again_on_the_same_socket_shows_nothing_and_runs_nothing_twice():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(0, seen=0)
        stage.send("x")
        first.says(1, "a")
        first.says(2, "b")
        await settle()
        first.attached(0, seen=1)  # its own line broke and was mended; our acknowledgements were lost with it
        for n, text in enumerate("abc", 1):
            first.says(n, text)
        await settle()
        assert stage.page.texts == ["a", "b", "c"]
        assert set(first.written) == {(1, "x")}, "under another number it would run twice"

    tell(story)


def test_a_new_kernel_under_the_old_name_is_heard_from_its_first_message_on():
    async def story(stage: Stage) -> None:
        first = await stage.socket(1)
        first.attached(0, seen=0)
        stage.send("x")
        first.frames.put_nowait(ws.encode_ack(1))
        for n, text in enumerate("abc", 1):
            first.says(n, text)
        await settle()
        stage.line.taken(2)
        first.lose()
        second = await stage.socket(2)
        assert second.after == 2
        second.attached(2, seen=0)  # it goes on where we are, but has never heard of us
        second.says(3, "new")
        await settle()
        assert stage.page.texts == ["a", "b", "c", "new"]

    tell(story)
