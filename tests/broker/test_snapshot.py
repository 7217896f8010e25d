"""Moments as people read them, though the machine's clock may be set."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from gateway.broker.snapshot import Wall
from tests.broker.world import World, run


def test_a_clock_that_is_set_right_bit_by_bit_moves_no_moment_and_one_that_jumps_moves_all():
    now, wall = [50.0], [1000.0]
    shown = Wall(lambda: now[0], lambda: wall[0])
    assert shown.offset == 950.0
    now[0], wall[0] = 60.0, 1010.9
    assert shown.offset == 950.0
    wall[0] = 4610.0
    assert shown.offset == 4550.0
    wall[0] = 1010.0
    assert shown.offset == 950.0


def test_since_when_is_told_by_the_clock_as_it_is_now(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        kernel = await world.kernel()
        await world.executing(kernel)
        before = datetime.fromisoformat(world.lease()["since"])
        true = time.time
        monkeypatch.setattr(time, "time", lambda: true() + 3600)
        world.broker._shown_wall._time = time.time
        after = datetime.fromisoformat(world.lease()["since"])
        assert abs(after - before - timedelta(hours=1)) < timedelta(seconds=30)
        assert abs(after - datetime.now(UTC) - timedelta(hours=1)) < timedelta(seconds=60)

    run(story)
