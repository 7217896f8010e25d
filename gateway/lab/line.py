"""One page's line to one kernel through a gateway: what was sent and seen, kept while either end is away.

The page (a browser's websocket to this Lab server) and the gateway come and go independently. Towards a gateway that speaks
``ELASTIC`` messages are numbered both ways, so nothing is lost and nothing repeated; towards others this does what can be done
without numbers. This module must never know tornado's handlers, Jupyter's settings or how a gateway is dialled.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from logging import Logger, LoggerAdapter
from typing import Any, Protocol

from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError

from ..protocol.errors import WireError
from ..protocol.websocket import (
    ACK,
    ATTACHED,
    CLOSE_KERNEL_GONE,
    CLOSE_SLOW_READER,
    ELASTIC,
    MESSAGE,
    V1,
    decode_elastic,
    decode_legacy,
    decode_v1,
    encode_ack,
    encode_legacy,
    encode_message,
    encode_v1,
)
from ..protocol.wire import Part
from .notices import AWAY, Message, Voice

GOING_AWAY = 1001  # a page that was closed or reloaded never comes back under its session id


class Page(Protocol):
    """The browser's end, as a line sees it."""

    def deliver(self, n: int | None, channel: str, parts: Sequence[Part]) -> Awaitable[None] | None:
        """Write a message; awaiting the result, if any, gives backpressure. Once the browser has it, ``Line.taken(n)`` is called."""

    def close(self, code: int, reason: str) -> None: ...


@dataclass(frozen=True)
class Patience:
    """How long a line waits for what, in seconds, and how much it keeps, in bytes."""

    retry_first: float
    retry_max: float
    notice_after: float
    gone_after: float
    keep: float
    outbox_bytes: int


@dataclass(frozen=True)
class _Sent:
    m: int
    channel: str
    parts: list[Part]
    size: int


class Line:
    """See the module. ``dial(after)`` opens a websocket to the gateway; ``ended(line)`` is called once nobody needs this line."""

    def __init__(
        self,
        dial: Callable[[int | None], Awaitable[WebSocketClientConnection]],
        patience: Patience,
        log: Logger | LoggerAdapter[Any],
        ended: Callable[[Line], None],
    ) -> None:
        self._dial, self._patience, self._log, self._ended = dial, patience, log, ended
        self._voice = Voice()
        self._page: Page | None = None
        self._ws: WebSocketClientConnection | None = None  # set while messages can be sent on it
        self._task: asyncio.Task[None] | None = None
        self._notice: asyncio.TimerHandle | None = None
        self._noticed = False
        self._expiry: asyncio.TimerHandle | None = None
        # From the gateway: numbers written to this page's socket, and those that the browser is known to have.
        self._seen = 0
        self._taken: int | None = None
        self._asked: int | None = None  # what the far end knows of _taken for sure: told when it was dialled, or said by it
        self._caught_up = asyncio.Event()
        # To the gateway: what it hasn't acknowledged.
        self._outbox: deque[_Sent] = deque()
        self._outbox_bytes = 0
        self._last_m = 0
        self._acked_m = 0

    # What the page's side calls

    def open(self, page: Page) -> None:
        """A page is here, the first or one that comes back: whatever the browser isn't known to have is sent again."""
        if self._expiry:
            self._expiry.cancel()
        if self._page is not None:
            self._page.close(GOING_AWAY, "another page took over this session")
        self._quiet()
        self._page = page
        self._seen = self._taken or 0
        self._caught_up.set()
        previous, self._task = self._task, asyncio.get_running_loop().create_task(self._run(self._task))
        if previous:
            previous.cancel()

    def leave(self, page: Page, code: int | None) -> None:
        """The page's socket has closed with ``code``. Its place is kept for a while; what it sent goes out all the same."""
        if page is not self._page:
            return
        self._page = None
        self._quiet()
        self._caught_up.set()
        if not self._outbox or self._ws is not None:
            self._stop(code)
        self._expiry = asyncio.get_running_loop().call_later(self._patience.keep, self.end)

    def send(self, channel: str, parts: list[Part]) -> None:
        """From the page to the kernel; kept until the gateway has it."""
        size = sum(map(len, parts))
        if self._outbox and self._outbox_bytes + size > self._patience.outbox_bytes:
            self._log.warning("Refused a message: %s bytes wait for the gateway already", self._outbox_bytes)
            for refusal in self._voice.refusal(parts, "the gateway is away and too much waits for it; run the cell again once it is back"):
                self._say(refusal)
            return
        self._last_m += 1
        sent = _Sent(self._last_m, channel, parts, size)
        self._outbox.append(sent)
        self._outbox_bytes += size
        self._post(sent)

    def taken(self, n: int) -> None:
        """The browser has everything up to ``n``."""
        self._taken = max(n, self._taken or 0)
        if self._taken >= self._seen:
            self._caught_up.set()
        self._write(encode_ack(self._taken))

    def end(self) -> None:
        """Nobody will come back: give everything up."""
        if self._expiry:
            self._expiry.cancel()
        self._quiet()
        self._stop(None)
        self._page = None
        self._ended(self)

    # The loop that keeps a websocket to the gateway

    async def _run(self, previous: asyncio.Task[None] | None) -> None:
        """Dial for as long as anybody is there, or something waits to be sent."""
        if previous:
            await asyncio.wait({previous})
        clock = asyncio.get_running_loop().time
        delay = self._patience.retry_first
        missing_since: float | None = None
        while self._needed():
            self._expect()
            try:
                self._asked = self._taken
                ws = await self._dial(self._asked)
            except HTTPClientError as exc:
                # A proxy in front of a gateway that is starting may say 404 too, so only a lasting 404 is believed.
                missing_since = (missing_since or clock()) if exc.code == 404 else None
                if missing_since is not None and clock() - missing_since >= self._patience.gone_after:
                    return self._gone("the gateway doesn't know it")
                self._log.info("The gateway refuses the kernel's websocket: %s", exc)
            except Exception as exc:  # no route, timeout, certificate, name: each may pass
                missing_since = None
                self._log.info("The gateway can't be reached: %s", exc or type(exc).__name__)
            else:
                missing_since = None
                began = clock()
                await self._serve(ws)
                if ws.close_code == CLOSE_KERNEL_GONE:
                    return self._gone(ws.close_reason or "it was shut down")
                if ws.close_code == CLOSE_SLOW_READER:
                    await self._caught_up.wait()
                if clock() - began > self._patience.retry_max:
                    delay = self._patience.retry_first
                self._log.info("Lost the gateway (close code %s)", ws.close_code)
            await asyncio.sleep(delay * random.uniform(0.5, 1))
            delay = min(2 * delay, self._patience.retry_max)
        return None

    async def _serve(self, ws: WebSocketClientConnection) -> None:
        """Read from the gateway until it closes, or until the page has left and all is sent."""
        elastic = ws.selected_subprotocol == ELASTIC
        decode: Any = decode_v1 if ws.selected_subprotocol == V1 else decode_legacy
        try:
            if not elastic:
                self._back(ws)
            elif self._taken is None:
                self._ws = ws  # a kernel that can't start never attaches: its gateway has to hear the requests that it will fail
                self._post_all()
            while self._needed() and (frame := await ws.read_message()) is not None:
                try:
                    if elastic:
                        self._numbered(ws, *decode_elastic(frame if isinstance(frame, bytes) else frame.encode()))
                    elif writing := self._deliver(None, *decode(frame)):
                        await writing  # nothing else bounds what such a gateway sends to a slow browser
                except WireError as exc:
                    self._log.warning("Dropped a message of the gateway that can't be read: %s", exc)
        finally:
            self._ws = None
            ws.close()

    def _needed(self) -> bool:
        return self._page is not None or bool(self._outbox)

    def _numbered(self, ws: WebSocketClientConnection, kind: int, numbers: tuple[int, ...], frame: memoryview | None) -> None:
        n = numbers[0]
        if kind == MESSAGE and frame is not None:
            channel, parts = decode_v1(frame)
            if n == 0:  # the gateway's own words
                self._deliver(None, channel, parts)
            elif n > self._seen and self._page is not None:
                self._seen = n
                self._caught_up.clear()
                self._deliver(n, channel, parts)
        elif kind == ACK:
            self._acknowledged(n)
        elif kind == ATTACHED:
            _, lost, seen = numbers
            if lost:
                self._log.warning("%s messages of this kernel are lost: nobody took them for too long", lost)
            # The first time, or the far end has forgotten us: what it has or what it was sent. It may attach us again on the same socket.
            strange = self._asked is None or n < self._asked or seen < self._acked_m
            self._asked = n
            if strange or n > self._seen:
                self._seen = self._taken = n
            self._go_on_after(seen, strange)
            self._back(ws)

    def _back(self, ws: WebSocketClientConnection) -> None:
        """The gateway is here; what has waited goes out."""
        self._ws = ws
        if self._noticed:
            self._say(self._voice.status(self._voice.execution_state))
        self._quiet()
        self._post_all()

    def _stop(self, code: int | None) -> None:
        if self._ws is not None:
            self._ws.close(*((GOING_AWAY, "page closed") if code == GOING_AWAY else ()))
            self._ws = None
        if self._task:
            self._task.cancel()
            self._task = None

    # Sending

    def _post_all(self) -> None:
        for sent in list(self._outbox):
            self._post(sent)

    def _post(self, sent: _Sent) -> None:
        if self._ws is None:
            return
        if self._ws.selected_subprotocol == ELASTIC:
            self._write(encode_message(sent.m, sent.channel, sent.parts))
        elif self._write((encode_v1 if self._ws.selected_subprotocol == V1 else encode_legacy)(sent.channel, sent.parts)):
            self._acknowledged(sent.m)  # such a gateway never says what it has

    def _write(self, frame: str | bytes) -> bool:
        if self._ws is None:
            return False
        try:
            self._ws.write_message(frame, binary=isinstance(frame, bytes)).add_done_callback(_ignore)
        except WebSocketClosedError:
            self._ws = None
            return False
        return True

    def _acknowledged(self, m: int) -> None:
        self._acked_m = max(m, self._acked_m)
        while self._outbox and self._outbox[0].m <= m:
            self._outbox_bytes -= self._outbox.popleft().size

    def _go_on_after(self, seen: int, strange: bool) -> None:
        """Carry on after ``seen``, the last message that the far end knows, also where one of us has forgotten the other."""
        if not strange and self._acked_m <= seen <= self._last_m:
            self._acknowledged(seen)
        else:
            self._outbox = deque(_Sent(m, sent.channel, sent.parts, sent.size) for m, sent in enumerate(self._outbox, seen + 1))
            self._acked_m, self._last_m = seen, seen + len(self._outbox)

    # Telling the page

    def _deliver(self, n: int | None, channel: str, parts: Sequence[Part]) -> Awaitable[None] | None:
        self._voice.listen(channel, parts)
        return self._page.deliver(n, channel, parts) if self._page is not None else None

    def _say(self, message: Message) -> None:
        if self._page is not None:
            self._page.deliver(None, *message)

    def _expect(self) -> None:
        """From now on somebody waits for the gateway."""
        if self._page is not None and self._notice is None and not self._noticed:
            self._notice = asyncio.get_running_loop().call_later(self._patience.notice_after, self._show_away)

    def _show_away(self) -> None:
        """The kernel's indicator shows it; the true status follows when the gateway is back."""
        self._noticed = True
        self._say(self._voice.status(AWAY))
        self._log.warning("The gateway is away; what the page sends is kept until it is back")

    def _quiet(self) -> None:
        self._noticed = False
        if self._notice:
            self._notice.cancel()
            self._notice = None

    def _gone(self, reason: str) -> None:
        self._log.warning("The kernel is gone: %s", reason)
        page, self._task = self._page, None
        self._say(self._voice.status("dead"))
        self.end()
        if page is not None:
            page.close(CLOSE_KERNEL_GONE, "the kernel is gone")


def _ignore(future: asyncio.Future[None]) -> None:
    """A write that fails is followed by the end of its socket, which is seen by the reader."""
    if not future.cancelled():
        future.exception()
