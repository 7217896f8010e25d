"""The policy's changes and the stream of events, without a server."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from gateway.protocol.errors import BadRequest
from gateway.server.gpu import BACKLOG, Stream, duration


class Broker:
    def __init__(self):
        self.listeners = []

    def snapshot(self):
        return {"gpus": [], "leases": [], "queue": [], "generation": 1}

    def subscribe(self, callback):
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    def say(self, *what):
        for listener in self.listeners:
            listener(*what)


@pytest.mark.parametrize("value", [None, "5", True, -1, math.nan, math.inf, [], {}])
def test_a_hold_that_is_no_duration_is_refused(value):
    with pytest.raises(BadRequest, match="seconds"):
        duration({"seconds": value}, "seconds")


def test_a_stream_begins_with_the_whole_state_and_goes_on_with_each_change():
    async def story():
        broker = Broker()
        stream = Stream(broker)
        assert json.loads((await anext(stream)).splitlines()[1].removeprefix("data: "))["generation"] == 1
        broker.say("lease", {"a": 1})
        broker.say("queue", {"b": 2})
        assert await anext(stream) == 'event: lease\ndata: {"a": 1}\n\nevent: queue\ndata: {"b": 2}\n\n'

    asyncio.run(story())


def test_a_reader_who_falls_behind_gets_the_whole_state_instead():
    async def story():
        broker = Broker()
        stream = Stream(broker)
        for at in range(10 * BACKLOG):
            broker.say("lease", at)
        text = await anext(stream)
        assert text.count("event:") <= BACKLOG + 1
        assert "event: state" in text

    asyncio.run(story())


def test_a_stream_without_news_shows_that_it_lives(monkeypatch):
    monkeypatch.setattr("gateway.server.gpu.BEAT", 0.001)

    async def story():
        stream = Stream(Broker())
        await anext(stream)
        assert await anext(stream) == ":\n\n"

    asyncio.run(story())


def test_a_closed_stream_ends_and_hears_nothing_more():
    async def story():
        broker = Broker()
        stream = Stream(broker)
        await anext(stream)
        stream.close()
        stream.close()
        assert broker.listeners == []
        assert [text async for text in stream] == []

    asyncio.run(story())
