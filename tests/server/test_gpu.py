"""The policy's changes and the stream of events, without a server."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from gateway.broker.news import BURST, KERNEL, News
from gateway.protocol.errors import BadRequest
from gateway.server.gpu import BACKLOG, PACE, Stream, duration, moment


class Broker:
    def __init__(self):
        self.listeners = []
        self.news = News(lambda: 1)

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


@pytest.mark.parametrize("text", ["yesterday", "nan", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"])
def test_a_moment_that_is_none_in_utc_is_refused(text):
    with pytest.raises(BadRequest, match="since must be a moment"):
        moment(text, "since")


def test_a_stream_begins_with_the_whole_state_and_goes_on_with_each_change():
    async def story():
        broker = Broker()
        stream = Stream(broker, "ann".__eq__)
        assert json.loads((await anext(stream)).splitlines()[1].removeprefix("data: "))["generation"] == 1
        broker.say("lease", {"a": 1})
        broker.say("queue", {"b": 2})
        assert await anext(stream) == 'event: lease\ndata: {"a": 1}\n\nevent: queue\ndata: {"b": 2}\n\n'

    asyncio.run(story())


def test_a_stream_tells_of_the_readers_own_bursts_and_of_kernels_about_to_be_ended_alone():
    async def story():
        broker = Broker()
        stream = Stream(broker, "ann".__eq__)
        await anext(stream)
        broker.news.tell(KERNEL, "started", kernel_id="k", user="ann")
        for user in ("bo", "ann"):
            broker.news.tell(BURST, "begun", burst_id=user, user=user)
            broker.news.tell(KERNEL, "cull_warned", kernel_id=user, user=user)
        told = [line for line in (await anext(stream)).splitlines() if line]
        assert told[::2] == ["event: burst", "event: kernel"]
        assert '"burst_id": "ann"' in told[1] and '"kernel_id": "ann"' in told[3]

    asyncio.run(story())


def test_what_happens_at_once_is_told_together_and_nothing_is_left_out(monkeypatch):
    async def story():
        broker = Broker()
        stream = Stream(broker, "ann".__eq__)
        await anext(stream)
        waited = []

        async def sleep(seconds):
            waited.append(seconds)
            broker.say("queue", 2)

        monkeypatch.setattr("gateway.server.gpu.asyncio.sleep", sleep)
        broker.say("queue", 1)
        assert (await anext(stream)).count("event: queue") == 2
        assert 0 < waited[0] <= PACE

    asyncio.run(story())


def test_a_reader_who_falls_behind_gets_the_whole_state_instead():
    async def story():
        broker = Broker()
        stream = Stream(broker, "ann".__eq__)
        for at in range(10 * BACKLOG):
            broker.say("lease", at)
        text = await anext(stream)
        assert text.count("event:") <= BACKLOG + 1
        assert "event: state" in text

    asyncio.run(story())


def test_a_stream_without_news_shows_that_it_lives(monkeypatch):
    monkeypatch.setattr("gateway.server.gpu.BEAT", 0.001)

    async def story():
        stream = Stream(Broker(), "ann".__eq__)
        await anext(stream)
        assert await anext(stream) == ":\n\n"

    asyncio.run(story())


def test_a_closed_stream_ends_and_hears_nothing_more():
    async def story():
        broker = Broker()
        stream = Stream(broker, "ann".__eq__)
        await anext(stream)
        stream.close()
        stream.close()
        assert broker.listeners == broker.news._listeners == []
        assert [text async for text in stream] == []

    asyncio.run(story())
