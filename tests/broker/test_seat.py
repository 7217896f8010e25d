"""The one seat of a broker: taken, refused, handed over; and the counter at it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.places import Places
from gateway.broker.broker import Broker
from gateway.broker.client import BrokerClient, request
from gateway.broker.seat import BROKER, GATEWAY, RUNS, ask, take
from gateway.protocol.errors import BadRequest, BrokerUnavailable, ElasticError, SupervisorLost
from gateway.settings import Leases
from tests.doubles.fake_backend import FakeBackend, gpu
from tests.doubles.fake_supervisor import FakeSupervisor


@pytest.fixture
def places(scratch_jupyter: str, tmp_path: Path) -> Places:
    return Places(str(Path(scratch_jupyter) / tmp_path.name[-12:]))


def story(tells: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(tells(), 30))


def a_broker(places: Places, kind: str, owner: str = "") -> tuple[Broker, FakeBackend]:
    backend = FakeBackend(gpu(), places=places)
    return Broker(owner=owner, kind=kind, backend=backend, leases=Leases()), backend


def test_the_socket_is_for_this_user_alone_and_goes_with_the_broker(places: Places) -> None:
    async def tells() -> None:
        seat = await take(places, BROKER)
        assert stat.S_IMODE(os.stat(places.broker_socket).st_mode) == 0o600
        seat.leave()
        assert not places.broker_socket.exists()

    story(tells)


def test_a_socket_left_by_one_that_was_killed_is_in_nobodys_way(places: Places) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(places.broker_socket))

    async def tells() -> None:
        (await take(places, BROKER)).leave()

    story(tells)


def test_leaving_never_takes_the_next_brokers_socket_away(places: Places) -> None:
    async def tells() -> None:
        first = await take(places, BROKER)
        first.listener.close()
        second = await take(places, BROKER)
        first.leave()
        assert places.broker_socket.exists()
        second.leave()

    story(tells)


def test_of_two_brokers_that_start_at_once_one_stays(places: Places) -> None:
    async def tells() -> None:
        found = await asyncio.gather(*(take(places, BROKER) for _ in range(4)), return_exceptions=True)
        assert sorted(getattr(each, "reason", "sits") for each in found) == [RUNS, RUNS, RUNS, "sits"]

    story(tells)


def test_an_on_demand_broker_makes_way_for_a_gateway_and_gives_its_gpus_back(places: Places) -> None:
    async def tells() -> None:
        old, backend = a_broker(places, BROKER)
        await old.start()
        supervisor = FakeSupervisor().listen()
        backend.supervisors.append(supervisor)
        assert (await ask(str(places.broker_socket), do="register", place=supervisor.place))["ok"]

        async def goes() -> None:
            assert old._desk is not None
            await old._desk.handed_over.wait()
            assert not backend.claimed
            await old.stop()

        leaving = asyncio.ensure_future(goes())
        new, _ = a_broker(places, GATEWAY, "lab")
        await new.start()
        await leaving
        assert (await ask(str(places.broker_socket), do="status"))["who"].startswith("gateway 'lab' of ")
        await new.stop()

    story(tells)


def test_a_gateway_makes_way_for_nobody(places: Places) -> None:
    async def tells() -> None:
        first, _ = a_broker(places, GATEWAY, "one")
        await first.start()
        for kind in (GATEWAY, BROKER):
            second, backend = a_broker(places, kind)
            with pytest.raises(BrokerUnavailable) as refused:
                await second.start()
            assert refused.value.reason == RUNS
            assert not backend.claimed
        await first.stop()

    story(tells)


def test_bad_lines_are_answered_and_harm_nobody(places: Places) -> None:
    async def tells() -> None:
        broker, _ = a_broker(places, BROKER)
        await broker.start()
        reader, writer = await asyncio.open_unix_connection(str(places.broker_socket))
        for line, reason in (
            (b"garbage", "malformed_message"),
            (b"[1]", "malformed_message"),
            (b"{}", "bad_request"),
            (b'{"do":"format the disk"}', "bad_request"),
            (b'{"do":"register"}', "bad_request"),
            (b'{"do":"register","place":"/etc"}', "supervisor_lost"),
            (b'{"do":"hold","kernel_id":"x","seconds":NaN}', "bad_request"),
            (b'{"do":"hold","kernel_id":"x","seconds":1}', "no_such_kernel"),
            (b'{"do":"release","kernel_id":"x"}', "no_such_kernel"),
        ):
            writer.write(line + b"\n")
            answer = json.loads(await reader.readline())
            assert not answer["ok"]
            assert answer["reason"] == reason, line
            assert answer["message"]
        flood, pouring = await asyncio.open_unix_connection(str(places.broker_socket))
        pouring.write(b"x" * (2 << 20))
        with contextlib.suppress(ConnectionResetError):
            assert await flood.read() == b""
        writer.write(b'{"do":"snapshot"}\n')
        assert json.loads(await reader.readline())["snapshot"]["generation"] == 1
        await broker.stop()

    story(tells)


def test_the_command_lines_requests_raise_the_error_that_was_answered(places: Places) -> None:
    with pytest.raises(BrokerUnavailable, match="No broker answers"):
        request(places, "status")

    async def tells() -> None:
        broker, _ = a_broker(places, BROKER)
        await broker.start()
        assert (await asyncio.to_thread(request, places, "status"))["kernels"] == 0
        with pytest.raises(ElasticError, match="There is no kernel"):
            await asyncio.to_thread(request, places, "release", kernel_id="x")
        with pytest.raises(BadRequest):
            await asyncio.to_thread(request, places, "nonsense")
        await broker.stop()

    story(tells)


def test_a_process_registers_its_kernels_with_each_broker_that_follows(places: Places) -> None:
    async def tells() -> None:
        supervisor = FakeSupervisor().listen()
        first, backend = a_broker(places, BROKER)
        backend.supervisors.append(supervisor)
        await first.start()
        client = BrokerClient(places)
        await client.register(supervisor.kernel_id, supervisor.place)
        assert set(first.links) == {"k1"}

        second, backend = a_broker(places, GATEWAY, "lab")
        starting = asyncio.ensure_future(second.start())
        assert first._desk is not None
        await first._desk.handed_over.wait()
        await first.stop()
        await starting
        backend.supervisors.append(supervisor)
        await client._register(supervisor.place)
        assert set(second.links) == {"k1"}
        with pytest.raises(SupervisorLost):
            await client.register("k2", "/nowhere")
        client.forget("k1")
        await second.stop()

    story(tells)


def test_a_broker_that_can_not_start_says_why(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = places.root.parent / f"{places.root.name}c"
    folder.mkdir()
    (folder / "jupyter_elastic_gateway_config.py").write_text("c.Leases.idle_timeout = -5")
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder))

    async def tells() -> None:
        with pytest.raises(BrokerUnavailable, match="idle_timeout"):
            await BrokerClient(places).ready()

    story(tells)


@pytest.mark.parametrize("said", [None, b"", b"garbage\n"], ids=["silent", "hangs up", "garbage"])
def test_a_broker_that_does_not_answer_is_named_with_the_cause_and_what_helps(places: Places, said: bytes | None) -> None:
    async def tells() -> None:
        async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await (reader.read() if said is None else reader.readline())
            writer.write(said or b"")
            writer.close()

        async with await asyncio.start_unix_server(serves, str(places.broker_socket)):
            with pytest.raises(BrokerUnavailable) as refused:
                await ask(str(places.broker_socket), 0.1 if said is None else 20.0, do="status")
        text = str(refused.value)
        why = {None: "nothing came within 0.1 seconds", b"": "it hung up"}.get(said, "makes no sense")
        assert f"(process {os.getpid()})" in text and why in text and "try again" in text

    story(tells)
