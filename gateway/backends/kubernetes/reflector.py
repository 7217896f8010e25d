"""The watch cache: what the API server knows about one kind of object, in memory, never more than a moment old.

It lists, then watches, and starts over by itself whatever happens. This module must never give up, and never decide anything.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, TypeVar

from .api import Json, Kind, KubeApi
from .decoding import Turns
from .errors import ApiError, ApiExpired, ApiUnavailable

Key = tuple[str, str]
Cache = dict[Key, Json]
OnEvent = Callable[[str, Json, "Json | None"], None]
T = TypeVar("T")
FIRST, LONGEST = 0.2, 30.0  # seconds between tries
BRIEF = 1.0  # seconds; a watch that ends sooner and brought nothing counts as a failure

log = logging.getLogger(__name__)


def backoff(failures: int, draw: Callable[[float, float], float] = random.uniform) -> float:
    """Seconds to wait after the ``failures``-th failure in a row: full jitter, so that gateways don't come back all at once."""
    return draw(0.0, min(LONGEST, FIRST * 2.0 ** min(failures - 1, 20)))


class Reflector:
    """All objects of one kind in a namespace (None: in all) that match a label selector and a field selector.

    ``cache`` stays the same dictionary for life; read it, never change it. ``on_event(type, object, old)`` is called from the loop for each
    ADDED, MODIFIED and DELETED, after the cache has it; what happened while there was no connection is told as its outcome. For
    DELETED the object is the last state known. ``synced``: the cache has been complete once. ``connected``: it is current;
    ``down_since`` (``time.monotonic``) since when it isn't, and ``problem`` why. All of these are for reading.
    """

    def __init__(
        self, api: KubeApi, kind: Kind, namespace: str | None, selector: str = "", on_event: OnEvent | None = None, fields: str = ""
    ) -> None:  # fmt: skip
        self.cache: Cache = {}
        self.synced = asyncio.Event()
        self.connected = False
        self.down_since: float | None = time.monotonic()
        self.problem: ApiError | None = None
        self._api, self._kind, self._namespace, self._selector = api, kind, namespace, selector
        self._fields = fields
        self._what = f"{kind.plural}{f' in {namespace}' if namespace else ''}"
        self._on_event = on_event
        self._version = ""  # "": list first
        self._failures = 0
        self._ended = False
        self._waiters: set[_Waiter] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running loop. Wait for ``synced`` before the cache is believed."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch {self._what}")

    async def stop(self) -> None:
        """End; whoever waits is told ``ApiUnavailable``. No error where it has ended, or never began."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._ended = True
        self.connected, self.down_since = False, self.down_since or time.monotonic()
        for waiter in self._waiters:
            waiter.fail(self._stopped())

    async def wait_for(self, predicate: Callable[[Cache], T], timeout: float | None = None, *, key: Key | None = None) -> T:
        """What ``predicate(cache)`` says as soon as that is true: it is asked now, and again in each event, so it sees every state
        that the server tells. With ``key``, only in events of that object. Raises ``TimeoutError``, and what ``predicate`` raises."""
        if now := predicate(self.cache):
            return now
        if self._ended:
            raise self._stopped()
        waiter = _Waiter(predicate, key)
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                return await waiter.future
        finally:
            self._waiters.discard(waiter)

    async def _run(self) -> None:
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                self._failures = 0
                continue
            except ApiExpired as exc:
                self._version = ""
                self._lost(exc, logging.INFO)
            except ApiError as exc:
                self._lost(exc)
            except Exception as exc:
                log.exception("Watch of %s: an error of the gateway itself; it is listed anew", self._what)
                self._version = ""
                self._lost(ApiUnavailable(f"The watch of {self._what} failed ({type(exc).__name__}): the gateway's log says more."))
            self._failures += 1
            await asyncio.sleep(backoff(self._failures))

    async def _list(self) -> None:
        items, version = await self._api.list(self._kind, self._namespace, self._selector, self._fields)
        turn, there = Turns(), set()
        for item in items:
            there.add(self._put(item))
            await turn()
        for key in [key for key in self.cache if key not in there]:
            self._drop(key, None)
            await turn()
        self._version = version
        self._back()
        self.synced.set()

    async def _watch(self) -> None:
        began, brought = time.monotonic(), False
        stream = self._api.watch(
            self._kind, self._namespace, self._selector, self._version, fields=self._fields, on_open=self._back
        )  # fmt: skip
        async with aclosing(stream):
            async for kind, told in stream:
                brought, self._failures = True, 0
                self._take(kind, told)
        if not brought and time.monotonic() - began < BRIEF:
            raise ApiUnavailable(f"The watch of {self._what} ended as soon as it began: is there a proxy on the way that cuts it?")

    def _take(self, kind: str, told: Json) -> None:
        if kind == "DELETED":
            self._drop(_key(told), told)
        elif kind in ("ADDED", "MODIFIED"):
            self._put(told)
        elif kind != "BOOKMARK":
            return
        self._version = told["metadata"]["resourceVersion"]

    def _put(self, told: Json) -> Key:
        told["metadata"].pop("managedFields", None)
        key, old = _key(told), self.cache.get(_key(told))
        if old is not None and old["metadata"]["uid"] != told["metadata"]["uid"]:  # another of the same name
            self._drop(key, None)
            old = None
        if old is None or old["metadata"]["resourceVersion"] != told["metadata"]["resourceVersion"]:
            self.cache[key] = told
            self._tell("ADDED" if old is None else "MODIFIED", key, told, old)
        return key

    def _drop(self, key: Key, last: Json | None) -> None:
        old = self.cache.pop(key, None)
        if old is not None:
            if last is not None:
                last["metadata"].pop("managedFields", None)
            self._tell("DELETED", key, last or old, old)

    def _tell(self, kind: str, key: Key, told: Json, old: Json | None) -> None:
        if self._on_event is not None:
            try:
                self._on_event(kind, told, old)
            except Exception:
                log.exception("What follows from %s of %s %s failed", kind, self._kind.plural, "/".join(key))
        for waiter in self._waiters:
            waiter.ask(self.cache, key)

    def _back(self) -> None:
        if self.problem is not None and self.down_since is not None:
            log.info("Watch of %s: back after %.1f s.", self._what, time.monotonic() - self.down_since)
        self.connected, self.down_since, self.problem = True, None, None

    def _lost(self, exc: ApiError, level: int = logging.WARNING) -> None:
        if type(self.problem) is not type(exc):  # once, not at each try
            log.log(level, "Watch of %s lost; trying again until it is back: %s", self._what, exc)
        self.connected, self.problem = False, exc
        self.down_since = self.down_since or time.monotonic()

    def _stopped(self) -> ApiUnavailable:
        return ApiUnavailable(f"The watch of {self._what} has been stopped: the gateway is stopping.")


class _Waiter:
    def __init__(self, predicate: Callable[[Cache], Any], key: Key | None) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._predicate, self._key = predicate, key

    def ask(self, cache: Cache, key: Key) -> None:
        if self.future.done() or (self._key is not None and key != self._key):
            return
        try:
            if found := self._predicate(cache):
                self.future.set_result(found)
        except Exception as exc:
            self.future.set_exception(exc)

    def fail(self, exc: ApiError) -> None:
        if not self.future.done():
            self.future.set_exception(exc)


def _key(told: Json) -> Key:
    meta = told["metadata"]
    return meta.get("namespace", ""), meta["name"]
