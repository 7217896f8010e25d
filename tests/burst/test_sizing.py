"""Leases for workers that are to come: none outlives its burst, whenever that ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.burst.record import ENDED, RUNNING, Folder, Record
from gateway.burst.sizing import Sizing
from gateway.protocol.burst import GROUP, Group, write_json
from gateway.settings import Bursts as Settings
from tests.broker.world import World, run
from tests.doubles.fake_backend import gpu


def sizing(world: World, folder: Path) -> Sizing:
    return Sizing(world.broker, Settings(), lambda record, why: None, lambda record: Folder(folder))


def burst() -> Record:
    return Record("b" * 16, "burst", "k1", "ada", "none", 1, 1, least=1, most=3, state=RUNNING)


def test_what_is_idle_is_leased_and_what_isn_t_there_is_not_waited_for(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record = burst()
        assert await sizing(world, tmp_path).lease_more(record, 3) == 2
        assert sorted(record.leases) == [f"{record.id}.1", f"{record.id}.2"]
        assert world.broker.book.queue() == []

    run(story, gpu("GPU-0"), gpu("GPU-1"))


@pytest.mark.parametrize("turns", range(4))
def test_a_burst_that_ends_while_it_leases_more_has_nothing_afterwards(tmp_path: Path, turns: int) -> None:
    async def story(world: World) -> None:
        record, leases = burst(), sizing(world, tmp_path)
        growing = asyncio.create_task(leases.lease_more(record, 2))
        for _ in range(turns):
            await asyncio.sleep(0)
        record.state = ENDED
        leases.end(record)
        await growing
        assert world.broker.guests.idle() == 2
        assert world.broker.book.kernels == {}

    run(story, gpu("GPU-0"), gpu("GPU-1"))


def test_a_change_that_could_not_be_made_is_tried_again_once_it_is_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        record, leases = burst(), sizing(world, tmp_path)
        record.workers, record.order = 2, 2  # ordered, and the agent has given it up
        write_json(tmp_path / GROUP, Group(number=1, workers=1, gpus=[], commits=True, refused=2).to_json())
        for now in (100.0, 130.0, 159.0):
            leases.look([record], now)
        assert (record.workers, record.order) == (1, 2)
        leases.look([record], 161.0)
        await world.until(lambda: record.order == 3)
        assert record.workers == 3

    run(story, gpu("GPU-0"), gpu("GPU-1"))
