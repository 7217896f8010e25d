"""The door by which pods reach their bursts' folders, asked by the code that runs in them, over real HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.burst import certificate
from gateway.burst.door import Door
from gateway.protocol import burst
from gateway.protocol.errors import BrokerUnavailable, ElasticError
from gateway.protocol.far import FarFolder
from tests.integration.machine import until

ID, OTHER = "0123456789abcdef", "fedcba9876543210"


class House:
    """Two bursts, in folders of this test."""

    def __init__(self, root: Path) -> None:
        self.root, self.new, self.heard = root, True, bytearray()
        self.asked: list[str] = []
        for each in (ID, OTHER):
            (root / each).mkdir()

    def token(self, burst_id: str) -> str:
        return {ID: "secret", OTHER: "another"}.get(burst_id, "")

    def folder(self, burst_id: str) -> Path:
        return self.root / burst_id

    def is_new(self, burst_id: str) -> bool:
        return self.new

    def most_ranks(self, burst_id: str) -> int:
        return 10

    async def plan(self, burst_id: str, rank: int, address: str, pod: str) -> dict[str, Any]:
        self.asked.append(address)
        try:
            if rank > 8:
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.asked.append("gone")
            raise
        return {"plan": {"rank": rank}} if rank else {}

    def words(self, burst_id: str, rank: int, since: int, data: bytes) -> dict[str, Any]:
        if rank > 7:
            raise ElasticError("no such rank", reason="no_such_burst")
        self.heard += data
        return {"next": since + len(data)}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def access(house: House, tmp_path: Path) -> Iterator[dict[str, str]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    made, key = certificate.make("test")
    (tmp_path / "crt").write_text(made)
    (tmp_path / "key").write_text(key)
    door = Door(house, 64 << 20)

    async def open_() -> None:
        door.open("127.0.0.1", 0, tmp_path / "crt", tmp_path / "key")

    asyncio.run_coroutine_threadsafe(open_(), loop).result(10)
    yield {"url": f"https://127.0.0.1:{door.port}", "certificate": made, "token": "secret", "burst": ID}
    asyncio.run_coroutine_threadsafe(door.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def test_buffers_come_and_go_as_they_are(access: dict[str, str], house: House, tmp_path: Path) -> None:
    far, buffers = FarFolder(access), [b"x" * 100, b"", bytes(range(256)) * 8192, b"end"]
    far.put_buffers(burst.CAPSULE, buffers)
    assert [bytes(each) for each in burst.read_buffers(house.folder(ID) / burst.CAPSULE)] == buffers
    for name in (f"{burst.CAPSULE}.sizes", burst.CAPSULE):
        far.get(name, tmp_path / "here" / name)
    assert [bytes(each) for each in burst.read_buffers(tmp_path / "here" / burst.CAPSULE)] == buffers
    assert (house.folder(ID) / burst.CAPSULE).stat().st_mode & 0o077 == 0
    far.put_file("out/3", tmp_path / "crt")
    assert far.names() == ["out/3"]


def test_plans_and_words(access: dict[str, str], house: House) -> None:
    far = FarFolder(access)
    assert far.ask("GET", "ranks/0/plan?address=10.0.0.7") == {}
    assert far.ask("GET", f"ranks/2/plan?address={far.own_address()}") == {"plan": {"rank": 2}}
    assert house.asked == ["10.0.0.7", "127.0.0.1"]
    for nonsense in ("", "?address=", "?address=example.org"):
        with pytest.raises(ElasticError, match="at which address"):
            far.ask("GET", f"ranks/2/plan{nonsense}")
    assert far.ask("POST", "ranks/2/words?since=7", b"abc\n") == {"next": 11}
    assert house.heard == b"abc\n"
    with pytest.raises(ElasticError, match="no such rank"):
        far.ask("POST", "ranks/8/words?since=0", b"abc\n")


@pytest.mark.parametrize("changed", [{"token": "another"}, {"burst": OTHER}, {"token": ""}, {"burst": "0" * 16}])
def test_a_token_opens_its_own_burst_alone(access: dict[str, str], house: House, changed: dict[str, str]) -> None:
    far = FarFolder({**access, **changed})
    for ask in (lambda: far.names(), lambda: far.put_json(burst.REQUEST, {}), lambda: far.ask("POST", "ranks/0/words?since=0", b"x\n")):
        with pytest.raises(ElasticError, match="not for you"):
            ask()
    assert not house.heard and not list(house.folder(OTHER).iterdir())


@pytest.mark.parametrize("name", ["token", "burst.json", "../fedcba9876543210/capsule", "out/../token", "out/x", "journal", "out/1.new"])
def test_no_other_file_is_read_or_written(access: dict[str, str], house: House, name: str) -> None:
    (house.folder(ID) / "token").write_text("secret")
    far = FarFolder(access)
    with pytest.raises(ElasticError):
        far.put_json(name, {})
    with pytest.raises(ElasticError):
        far.get(name, house.root / "got")
    assert [path.name for path in house.folder(ID).iterdir()] == ["token"]


def test_what_a_cell_takes_along_is_fixed_once_it_was_started(access: dict[str, str], house: House) -> None:
    house.new = False
    far = FarFolder(access)
    with pytest.raises(ElasticError, match="not to be written now"):
        far.put_buffers(burst.CAPSULE, [b"x"])
    far.put_file("out/0", house.root / "crt")


@pytest.mark.parametrize(("name", "taken"), [("out/9", True), ("failed/9", True), ("out/10", False), ("failed/9999999", False)])
def test_a_rank_that_there_can_not_be_brings_nothing(access: dict[str, str], house: House, name: str, taken: bool) -> None:
    with contextlib.nullcontext() if taken else pytest.raises(ElasticError, match="not to be written now"):
        FarFolder(access).put_buffers(name, [b"x"])
    assert (house.folder(ID) / name).exists() == taken


def test_nobody_with_another_certificate_is_sent_the_token(access: dict[str, str]) -> None:
    with pytest.raises(BrokerUnavailable, match="another certificate"):
        FarFolder({**access, "certificate": certificate.make("test")[0]}).names()


def test_a_gateway_that_is_away_is_told_after_the_patience(access: dict[str, str]) -> None:
    with pytest.raises(BrokerUnavailable, match="can't be reached"):
        FarFolder({**access, "url": "https://127.0.0.1:1"}, patience=0.0).names()


def test_a_rank_that_is_gone_waits_for_no_plan(access: dict[str, str], house: House) -> None:
    far = FarFolder(access, patience=0)

    def ask() -> None:
        with contextlib.suppress(BrokerUnavailable):
            far.ask("GET", "ranks/9/plan?address=10.0.0.7")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    until(lambda: house.asked)
    assert far._connection is not None and far._connection.sock is not None
    far._connection.sock.shutdown(socket.SHUT_RDWR)
    until(lambda: house.asked == ["10.0.0.7", "gone"])
