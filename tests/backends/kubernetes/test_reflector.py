"""The watch cache, through everything that a connection to an API server can go through."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.kubernetes import reflector as module
from gateway.backends.kubernetes.api import PODS, KubeApi
from gateway.backends.kubernetes.errors import ApiDenied, ApiUnavailable
from gateway.backends.kubernetes.reflector import LONGEST, Reflector, backoff
from tests.doubles.api_server import ApiServer, pod, status


class Watched:
    """A server, a client, and a reflector whose events are written down."""

    def __init__(self, server: ApiServer, api: KubeApi) -> None:
        self.server, self.api = server, api
        self.heard: list[tuple[str, str]] = []
        self.olds: list[Any] = []
        self.reflector = Reflector(api, PODS, "ns", "app=x", on_event=self.note)

    def note(self, kind: str, told: dict, old: dict | None) -> None:
        self.heard.append((kind, told["metadata"]["name"]))
        self.olds.append(old)

    async def put(self, name: str, **more: Any) -> dict:
        return await self.server.put(pod(name, app="x") | more)

    async def has(self, *names: str) -> None:
        await self.reflector.wait_for(lambda cache: tuple(sorted(name for _, name in cache)) == names)

    async def begin(self) -> None:
        self.reflector.start()
        await self.reflector.synced.wait()
        await self.server.stream()

    async def lost(self) -> None:
        while self.reflector.connected:
            await asyncio.sleep(0)


Story = Callable[[Watched], Awaitable[Any]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    monkeypatch.setattr(module, "FIRST", 0.001)
    monkeypatch.setattr(module, "LONGEST", 0.01)

    def play(story: Story) -> None:
        async def whole() -> None:
            async with ApiServer() as server:
                api = await KubeApi.connect(kubeconfig=server.kubeconfig(tmp_path))
                watched = Watched(server, api)
                try:
                    await story(watched)
                finally:
                    await watched.reflector.stop()
                    await api.close()

        asyncio.run(asyncio.wait_for(whole(), 60))

    return play


def test_the_cache_is_what_the_server_has_and_each_change_is_told(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        await w.put("a")
        await w.server.put(pod("foreign"))
        await w.begin()
        assert w.reflector.connected and w.reflector.down_since is None
        await w.put("b")
        await w.put("a", spec={"nodeName": "n"})
        await w.server.remove("b")
        await w.has("a")
        await w.reflector.wait_for(lambda cache: w.heard[-1] == ("DELETED", "b"))
        assert w.heard == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
        assert w.olds[0] is None and w.olds[2]["spec"] == {} and w.olds[3]["metadata"]["name"] == "b"
        assert w.reflector.cache[("ns", "a")]["spec"] == {"nodeName": "n"}
        assert "managedFields" not in w.reflector.cache[("ns", "a")]["metadata"]

    play(story)


def test_a_watch_that_ends_goes_on_where_it_was_without_a_new_list(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        await w.begin()
        await w.put("a")
        await w.has("a")
        (await w.server.stream()).end()
        await w.put("b")
        await w.has("a", "b")
        assert w.heard == [("ADDED", "a"), ("ADDED", "b")]
        lists = [path for _, path in w.server.requests if "watch=1" not in path]
        assert len(lists) == 1

    play(story)


def test_a_bookmark_moves_the_version_so_that_nothing_old_is_asked_for(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        await w.begin()
        for n in range(5):
            await w.server.put(pod(f"foreign{n}"))
        await w.server.bookmark()
        w.server.compact()
        await w.put("a")
        await w.has("a")
        (await w.server.stream()).cut()
        await w.put("b")
        await w.has("a", "b")
        assert len([path for _, path in w.server.requests if "watch=1" not in path]) == 1

    play(story)


@pytest.mark.parametrize("as_event", [True, False], ids=["as an event", "as a status"])
def test_a_version_too_old_is_listed_anew_and_the_difference_told(play: Callable[[Story], None], as_event: bool) -> None:
    async def story(w: Watched) -> None:
        w.server.gone_as_event = as_event
        for name in ("changes", "goes", "returns", "stays"):
            await w.put(name)
        await w.begin()
        w.heard.clear()
        first = w.reflector.cache
        await w.server.down()
        await w.lost()
        await w.put("changes", spec={"nodeName": "n"})
        await w.server.remove("goes")
        await w.server.remove("returns")
        await w.put("returns")
        await w.put("comes")
        w.server.compact()
        await w.server.listen()
        await w.has("changes", "comes", "returns", "stays")
        while not w.reflector.connected:
            await asyncio.sleep(0)
        assert sorted(w.heard) == [
            ("ADDED", "comes"), ("ADDED", "returns"), ("DELETED", "goes"), ("DELETED", "returns"), ("MODIFIED", "changes"),
        ]  # fmt: skip
        assert w.heard.index(("DELETED", "returns")) < w.heard.index(("ADDED", "returns"))
        assert w.reflector.cache is first

    play(story)


def test_a_stream_cut_in_the_middle_of_a_line_loses_and_repeats_nothing(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        await w.begin()
        for n in range(10):
            stream = await w.server.stream()
            stream.silent = True
            await stream.raw(b'{"type": "ADDED", "object": {"metadata": {"name": "half')
            stream.cut()
            await w.put(f"p{n}")
            await w.has(*(f"p{k}" for k in range(n + 1)))
        assert w.heard == [("ADDED", f"p{n}") for n in range(10)]

    play(story)


def test_a_stream_that_falls_silent_is_asked_for_anew(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        w.api.watch_seconds, w.api.stall = (0, 0), 0.2
        await w.begin()
        for stream in w.server.streams:
            stream.silent = True
        await w.put("a")
        await w.has("a")

    play(story)


def test_a_server_that_is_away_is_known_to_be_and_waited_for(play: Callable[[Story], None], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(w: Watched) -> None:
        await w.put("a")
        await w.begin()
        await w.server.down()
        await w.lost()
        assert w.reflector.down_since is not None and isinstance(w.reflector.problem, ApiUnavailable)
        assert ("ns", "a") in w.reflector.cache, "what was known stays known"
        since = w.reflector.down_since
        tries = w.reflector._failures
        while w.reflector._failures < tries + 5:
            await asyncio.sleep(0)
        assert w.reflector.down_since == since
        await w.put("b")
        await w.server.listen()
        await w.has("a", "b")
        assert w.reflector.connected and w.reflector.down_since is None and w.reflector.problem is None
        assert w.heard == [("ADDED", "a"), ("ADDED", "b")]
        warnings = [record for record in caplog.records if record.name == module.__name__ and record.levelno == logging.WARNING]
        assert len(warnings) == 1, "said once, not at each try"

    play(story)


def test_who_may_not_list_is_told_why_and_tried_again(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        w.server.faults = [(403, status(403, "Forbidden", "pods is forbidden"), {})] * 3
        w.reflector.start()
        while w.reflector.problem is None:
            await asyncio.sleep(0)
        assert isinstance(w.reflector.problem, ApiDenied) and not w.reflector.synced.is_set()
        await w.reflector.synced.wait()
        assert w.reflector.problem is None

    play(story)


def test_a_listener_that_fails_hurts_nobody(play: Callable[[Story], None], caplog: pytest.LogCaptureFixture) -> None:
    async def story(w: Watched) -> None:
        def fails(*_: Any) -> None:
            raise RuntimeError("the listener's own")

        w.reflector._on_event = fails
        await w.put("a")
        await w.begin()
        await w.put("b")
        await w.has("a", "b")
        assert w.reflector.connected
        assert len([path for _, path in w.server.requests if "watch=1" not in path]) == 1

    play(story)
    assert "the listener's own" in caplog.text


def test_nonsense_from_the_server_is_survived(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        await w.begin()
        for line in (
            b"<html>",
            b"7",
            b"{}",
            b'{"type": "ADDED", "object": {}}',
            b'{"type": "ADDED", "object": null}',
            b'{"type": "ERROR", "object": {}}',
        ):
            stream = await w.server.stream()
            await stream.raw(line + b"\n")
            while w.reflector.connected:
                await asyncio.sleep(0)
            stream.end()
        await w.put("a")
        await w.has("a")

    play(story)


def test_who_waits_sees_every_state_even_one_that_passes_at_once(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        await w.begin()
        key = ("ns", "a")
        running = asyncio.create_task(w.reflector.wait_for(lambda cache: key in cache and cache[key]["status"].get("phase") == "Running"))
        only = asyncio.create_task(w.reflector.wait_for(lambda cache: len(w.heard), key=("ns", "other")))
        await asyncio.sleep(0)
        for phase in ("Pending", "Running", "Failed"):
            await w.put("a", status={"phase": phase})
        await running
        assert not only.done()
        await w.put("other")
        assert await only == 4
        with pytest.raises(TimeoutError):
            await w.reflector.wait_for(lambda cache: False, 0.01)
        with pytest.raises(ZeroDivisionError):
            await w.reflector.wait_for(lambda cache: 1 / 0)

    play(story)


def test_who_waits_is_told_when_the_watch_is_stopped(play: Callable[[Story], None]) -> None:
    async def story(w: Watched) -> None:
        await w.begin()
        waiting = asyncio.create_task(w.reflector.wait_for(lambda cache: False))
        await asyncio.sleep(0)
        await w.reflector.stop()
        with pytest.raises(ApiUnavailable):
            await waiting
        with pytest.raises(ApiUnavailable):
            await w.reflector.wait_for(lambda cache: False)
        await w.reflector.stop()
        assert not w.reflector.connected

    play(story)


def test_others_have_their_turn_during_a_flood(play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.backends.kubernetes.decoding.SLICE", 0.0)

    async def story(w: Watched) -> None:
        await w.begin()
        turns, seen = 0, []
        w.reflector._on_event = lambda *_: seen.append(turns)
        stream = await w.server.stream()
        told = await w.put("a")
        events = []
        for n in range(2000):
            changed = told | {"metadata": told["metadata"] | {"resourceVersion": str(10_000 + n)}}
            events.append(b'{"type": "MODIFIED", "object": %s}\n' % json.dumps(changed).encode())
        await stream.raw(b"".join(events))
        while len(seen) < 2001:
            turns += 1
            await asyncio.sleep(0)
        assert len(set(seen)) > 1900, "the loop turned between any two of them"

    play(story)


def test_tries_are_further_and_further_apart_and_never_in_step() -> None:
    longest = [backoff(n, lambda low, high: high) for n in range(1, 100)]
    assert longest[:4] == [0.2, 0.4, 0.8, 1.6] and longest[-1] == LONGEST == 30.0
    assert backoff(5, lambda low, high: low) == 0.0
    assert len({backoff(8) for _ in range(20)}) > 10
