"""``/api/gpu``: who holds which GPU, who waits, and what an operator may change.

Everything is read from the broker's snapshot and asked of the broker. It must never keep an event for a reader who doesn't read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tornado.iostream import StreamClosedError

from ..broker.news import BURST, KERNEL
from ..broker.rules import switch
from ..broker.usage import usage_of
from ..protocol.errors import BadRequest, BrokerUnavailable, ElasticError
from ..settings import MOST
from .answers import Handler, rest

BEAT = 15.0  # seconds between two signs of life on an event stream
BACKLOG = 256  # events that a slow reader may be behind before it is only given the newest state
CULLING = ("cull_warned", "cull_averted")  # of the news of kernels, what a page is told here; /api/events/subscribe has all
PACE = 0.2  # seconds between two tellings to one reader: many pages cost little however much goes on


class GpuHandlerBase(Handler):
    auth_resource = "gpu"

    @property
    def broker(self) -> Any:
        broker = self.settings.get("elastic_broker")
        if broker is None:
            raise BrokerUnavailable("This server leases no GPUs. Look at its log for why its broker did not start.")
        return broker

    def known(self, kernel_id: str) -> str:
        if kernel_id not in self.broker.links:
            raise ElasticError("There is no such kernel, or it still starts: GET /api/gpu lists those there are.", reason="no_such_kernel")
        return kernel_id


class GpuHandler(GpuHandlerBase):
    @rest
    async def get(self) -> None:
        self.answer(self.broker.snapshot())


class ReleaseHandler(GpuHandlerBase):
    """Take the GPU from an idle kernel; its state is parked."""

    @rest
    async def post(self, kernel_id: str) -> None:
        await self.broker.release(self.known(kernel_id))
        self.answer(self.broker.snapshot())


class HoldHandler(GpuHandlerBase):
    """Leave the GPU with a kernel for some seconds although it is idle; 0 ends that."""

    @rest
    async def post(self, kernel_id: str) -> None:
        await self.broker.hold(self.known(kernel_id), duration(self.body(), "seconds"))
        self.answer(self.broker.snapshot())


class PolicyHandler(GpuHandlerBase):
    """The rules in force; with ``?kernel=ID`` which value of each holds for that kernel, and why. ``PATCH`` changes some of them, also for
    the gateways to come; all of them or, if one is bad, none."""

    @rest
    async def get(self) -> None:
        kernel_id = self.get_query_argument("kernel", "")
        self.answer(self.broker.explain(self.known(kernel_id)) if kernel_id else self.broker.rules.show())

    @rest
    async def patch(self) -> None:
        asker = self.current_user
        await self.broker.rules.change_and_keep(self.body(), by=asker.username if getattr(asker, "named", True) else "")
        self.answer(self.broker.rules.show())


class UsageHandler(GpuHandlerBase):
    """GPU time: ``?by=user`` (kernel, kernelspec, flavor, day, cell), ``since`` and ``until`` as ISO 8601. Users see their own, admins
    all."""

    @rest
    async def get(self) -> None:
        usage = usage_of(self.broker)
        if usage is None:
            raise BrokerUnavailable("This server keeps no usage.")
        since, until = (moment(self.get_query_argument(name, ""), name) for name in ("since", "until"))
        user = None if self.mine_all() else self.current_user.username
        self.answer(await usage.report(self.get_query_argument("by", "user"), since or 0.0, until, user))


class DrainHandler(GpuHandlerBase):
    """Take a node down: ``{"on": true}`` lets cells there end, takes its GPUs back and lets nothing new begin; false ends that."""

    @rest
    async def post(self, node: str) -> None:
        self.broker.drain(node, switch(self.body(), "on"))
        self.answer(self.broker.snapshot())


class EventsHandler(GpuHandlerBase):
    """Server-sent events: the whole state first, then each change. Of the asker's own, ``burst`` when one waits, begins or ends, and
    ``kernel`` when an idle one is about to be ended, or no longer. A reader who falls behind gets the whole state instead."""

    reading: Stream | None = None

    @rest
    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-cache")
        self.set_header("X-Accel-Buffering", "no")
        self.reading = stream = Stream(self.broker, self.mine)
        self.settings.setdefault("elastic_streams", set()).add(stream)
        try:
            async for text in stream:
                self.write(text)
                await self.flush()
        except StreamClosedError:
            pass
        finally:
            stream.close()
            self.settings["elastic_streams"].discard(stream)

    def on_connection_close(self) -> None:
        if self.reading is not None:
            self.reading.close()


class Stream:
    """What one reader is still owed. ``mine(user)``: whether the reader may know what becomes of that user's bursts and kernels."""

    def __init__(self, broker: Any, mine: Callable[[str], bool]) -> None:
        self._broker, self._mine = broker, mine
        self._owed: list[tuple[str, Any]] = [("state", broker.snapshot())]
        self._news = asyncio.Event()
        self._news.set()
        self._told = -PACE
        self._open = True
        self._leave: list[Callable[[], None]] = [broker.subscribe(self._heard), broker.news.join(self._happened)]

    def _happened(self, subject: str, fields: dict[str, Any]) -> None:
        told = subject == BURST or (subject == KERNEL and fields["action"] in CULLING)
        if told and self._mine(fields["user"]):
            self._heard(subject, fields)

    def _heard(self, name: str, value: Any) -> None:
        if len(self._owed) >= BACKLOG:
            self._owed = [("state", self._broker.snapshot())]
        else:
            self._owed.append((name, value))
        self._news.set()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(BEAT):
                await self._news.wait()
        except TimeoutError:
            return ":\n\n"
        if self._open:
            await asyncio.sleep(max(0.0, self._told + PACE - clock()))
        self._news.clear()
        if not self._open:
            raise StopAsyncIteration
        self._told = clock()
        owed, self._owed = self._owed, []
        return "".join(f"event: {name}\ndata: {json.dumps(value)}\n\n" for name, value in owed) or ":\n\n"

    def close(self) -> None:
        leave, self._leave = self._leave, []
        for each in leave:
            each()
        self._open = False
        self._news.set()


def duration(body: dict[str, Any], name: str) -> float:
    """A number of seconds from a request. Raises ``BadRequest``."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise BadRequest(f"{name} must be a number of seconds, 0 or more.")
    return float(value)


def moment(text: str, name: str) -> float | None:
    """Seconds since 1970 from ISO 8601, in UTC where no zone stands; None: not said. Raises ``BadRequest``."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        at = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        datetime.fromtimestamp(at, UTC)  # there is such a year in UTC
        return at
    except (ValueError, OverflowError, OSError):
        raise BadRequest(f"{name} must be a moment such as 2030-01-31T12:00:00Z.") from None


default_handlers = [
    (r"/api/gpu", GpuHandler),
    (r"/api/gpu/kernels/([^/]+)/release", ReleaseHandler),
    (r"/api/gpu/kernels/([^/]+)/hold", HoldHandler),
    (r"/api/gpu/nodes/([^/]+)/drain", DrainHandler),
    (r"/api/gpu/policy", PolicyHandler),
    (r"/api/gpu/usage", UsageHandler),
    (r"/api/gpu/events", EventsHandler),
]
