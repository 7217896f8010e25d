"""GPU time as it is kept: on disk, over kills of the gateway, and added up the same everywhere."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.broker.usage import DAY, Usage
from gateway.leases.events import Elsewhere, KernelGone, KernelSeen
from gateway.leases.tally import Tally
from gateway.protocol.errors import BadRequest
from gateway.protocol.model import Phase
from gateway.server.metrics import ElasticMetrics
from gateway.settings import Usage as Settings
from tests.leases.world import World

WALL = 1_700_000_000.0


class Site:
    """A world with its usage file; ``killed`` is a gateway that dies and the next one."""

    def __init__(self, path: Path, **prices: float) -> None:
        self.path, self.prices = path, prices
        self.world = World(gpus=2, idle_timeout=10.0)
        self.usage = self.kept()

    def kept(self) -> Usage:
        broker: Any = SimpleNamespace(book=self.world.book, _clock=lambda: self.world.now, _wall=WALL, beside=[])
        return Usage(broker, str(self.path), Settings(prices=self.prices))

    async def killed(self, away: float = 0.0) -> None:
        await self.usage._write(self.usage._news())
        self.world.now += away
        self.world.reborn()
        self.usage = self.kept()
        await self.usage.start()

    async def sums(self, by: str = "user", **kwargs: Any) -> list[dict[str, Any]]:
        return (await self.usage.report(by, kwargs.get("since", 0.0), kwargs.get("until"), kwargs.get("user")))["rows"]


def told(story: Any, path: Path, **prices: float) -> None:
    async def whole() -> None:
        site = Site(path, **prices)
        await site.usage.start()
        try:
            await story(site)
        finally:
            await site.usage.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


def test_time_is_added_up_by_user_with_its_cost_and_for_prometheus_the_same(path: Path):
    async def story(site: Site) -> None:
        for name, user, seconds in (("k1", "ana", 30), ("k2", "bo", 3600)):
            site.world.kernel(name, user, spec="torch")
            site.world.run(name)
            site.world.advance(seconds)
            site.world.done(name)
            site.world.advance(10)
        rows = {row["user"]: row for row in await site.sums()}
        assert rows["ana"] == {
            "user": "ana", "cells": 1, "gpu_seconds_held": 40.0, "gpu_seconds_executed": 30.0, "gpu_seconds_saved": 3610.0,
            "cost": pytest.approx(40 / 3600 * 2, abs=1e-3),
        }  # fmt: skip
        totals = site.usage.totals()
        for user, row in rows.items():
            assert totals["held", user, "gpu", "torch"] == pytest.approx(row["gpu_seconds_held"])
            assert totals["executed", user, "gpu", "torch"] == pytest.approx(row["gpu_seconds_executed"])

    told(story, path, gpu=2.0)


def test_a_span_goes_on_over_a_kill_from_where_it_began(path: Path):
    async def story(site: Site) -> None:
        site.world.kernel("k", "ana")
        site.world.run("k")
        site.world.advance(20)
        await site.killed(away=50)
        site.world.advance(30)
        site.world.die("k")
        (row,) = await site.sums()
        assert (row["gpu_seconds_held"], row["gpu_seconds_executed"], row["cells"]) == (100.0, 100.0, 1)
        assert site.usage.totals()["held", "ana", "gpu", ""] == 100.0

    told(story, path)


def test_a_kernel_that_ended_while_no_gateway_ran_had_its_gpu_until_the_file_was_last_written(path: Path):
    async def story(site: Site) -> None:
        site.world.kernel("k", "ana")
        site.world.run("k")
        site.world.advance(20)
        await site.usage._write(site.usage._news())
        del site.world.kernels["k"]
        await site.killed(away=500)
        (row,) = await site.sums()
        assert row["gpu_seconds_held"] == 20.0

    told(story, path)


def test_counters_go_on_where_the_last_gateway_stopped(path: Path):
    async def story(site: Site) -> None:
        for _ in range(5):
            site.world.kernel("k", "ana")
            site.world.run("k")
            site.world.advance(7)
            site.world.die("k")
            await site.killed()
        assert site.usage.totals()["held", "ana", "gpu", ""] == pytest.approx(35.0)

    told(story, path)


def prometheus(site: Site) -> dict[str, float]:
    """What it reads of all users, by kind."""
    registry = CollectorRegistry()
    nobody: Any = lambda: {"gpus": [], "leases": [], "queue": [], "generation": 1}  # noqa: E731
    ElasticMetrics(list, nobody, dict, site.usage.totals, Tally(), {}, list, bool).register(registry)
    found = re.findall(r"^elastic_gpu_seconds_(\w+)_total{.*} (\S+)$", generate_latest(registry).decode(), re.MULTILINE)
    return {kind: sum(float(value) for each, value in found if each == kind) for kind in ("held", "executed", "saved")}


def test_a_thousand_random_cells_with_kills_between_agree_everywhere(path: Path):
    import random

    chance = random.Random(7)

    async def story(site: Site) -> None:
        world, truth = site.world, {"held": 0.0, "executed": 0.0}
        names = [f"k{i}" for i in range(5)]
        for i, name in enumerate(names):
            world.kernel(name, f"user{i % 3}")

        def passes(seconds: float) -> None:
            """Counted from the supervisors alone."""
            for _ in range(round(seconds * 2)):
                for kernel in world.kernels.values():
                    truth["held"] += 0.5 * len(kernel.gpus)
                    truth["executed"] += 0.5 * bool(kernel.running and kernel.gpus)
                world.advance(0.5)

        for cell in range(1000):
            name = chance.choice(names)
            world.run(name)
            passes(chance.choice([0.5, 1, 2, 12]))
            for other in names:
                if chance.random() < 0.6:
                    world.done(other)
            passes(chance.choice([0, 0.5, 3]))
            if cell % 100 == 50:
                await site.killed()
        rows, totals, scraped = await site.sums(), site.usage.totals(), prometheus(site)
        cells = await site.sums("cell")
        assert sum(cell["gpus"] * cell["seconds"] for cell in cells) == pytest.approx(truth["executed"], abs=1)
        for kind in ("held", "executed"):
            assert scraped[kind] == pytest.approx(truth[kind], abs=1)
            assert sum(row[f"gpu_seconds_{kind}"] for row in rows) == pytest.approx(truth[kind], abs=1)
            assert sum(seconds for key, seconds in totals.items() if key[0] == kind) == pytest.approx(truth[kind], abs=1)

    told(story, path)


def test_what_is_too_old_is_removed_and_prometheus_never_counts_back(path: Path):
    async def story(site: Site) -> None:
        site.usage._settings.keep_days = 30
        site.world.kernel("k", "ana")
        for day in range(40):
            site.world.run("k")
            site.world.advance(60)
            site.world.done("k")
            if day == 20:
                await site.killed()
                site.usage._settings.keep_days = 30
            site.world.advance(DAY - 60)
        before = site.usage.totals()
        await site.usage.report("user", 0.0, None, None)
        await site.usage._forget()
        (row,) = await site.sums()
        assert (row["cells"], row["gpu_seconds_executed"]) == (30, 30 * 60)
        assert site.usage.totals() == before
        await site.killed()
        after = site.usage.totals()
        assert {key: pytest.approx(value) for key, value in after.items()} == before
        assert after["executed", "ana", "gpu", ""] == pytest.approx(40 * 60)

    told(story, path)


def test_a_time_may_be_bounded_and_a_user_alone_asked_for(path: Path):
    async def story(site: Site) -> None:
        for name in ("ana", "bo"):
            site.world.kernel(f"of-{name}", name)
            site.world.run(f"of-{name}")
        site.world.advance(100)
        (row,) = await site.sums(since=WALL + 20, until=WALL + 50, user="ana")
        assert (row["user"], row["gpu_seconds_held"]) == ("ana", 30.0)
        assert [row["kernel"] for row in await site.sums("cell", user="bo")] == ["of-bo"]
        assert [row["day"] for row in await site.sums("day")] == ["2023-11-14"]
        for by in ("kernel", "kernelspec", "flavor"):
            assert await site.sums(by)
        with pytest.raises(BadRequest, match="by can't be"):
            await site.sums("password; DROP TABLE spans")

    told(story, path)


def test_somebody_elses_pod_that_waits_has_no_time_here(path: Path):
    async def story(site: Site) -> None:
        site.world.book.handle(KernelSeen("pod", "pod", phase=Phase.WAITING, wanted=True), site.world.now)
        site.world.now += 5
        site.world.book.handle(KernelGone("pod"), site.world.now)
        assert await site.sums() == []

    told(story, path)


def test_where_the_file_can_not_be_time_is_kept_until_the_end_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def story(site: Site) -> None:
        site.world.kernel("k", "ana")
        site.world.run("k")
        site.world.advance(5)
        assert (await site.sums())[0]["gpu_seconds_held"] == 5.0

    told(story, tmp_path / "no folder" / "usage.db")
    assert "set Usage.database" in caplog.text


def test_gpus_of_a_burst_in_pods_cost_what_others_do_and_go_on_under_the_next_gateway(path: Path):
    async def story(site: Site) -> None:
        burst = Elsewhere("burst", "ana", 2, 2, ("local",))
        site.world.tell(burst)
        site.world.advance(1800)
        assert await site.sums() == [
            {"user": "ana", "cells": 1, "gpu_seconds_held": 3600, "gpu_seconds_executed": 3600, "gpu_seconds_saved": 0, "cost": 2.0}
        ]
        await site.killed()
        site.world.tell(burst)
        site.world.advance(1800)
        site.world.tell(Elsewhere("burst", "ana", 0))
        site.world.advance(1800)
        assert (await site.sums())[0]["cost"] == 4.0

    told(story, path, gpu=2.0)


def test_the_file_is_this_users_alone(path: Path):
    async def story(site: Site) -> None:
        pass

    told(story, path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_removed_while_the_gateway_runs_is_begun_anew_and_the_log_says_so(path: Path, caplog: pytest.LogCaptureFixture):
    async def story(site: Site) -> None:
        site.world.kernel("k1", "ana")
        site.world.run("k1")
        await site.usage.report("user", 0, None, None)
        for left in path.parent.iterdir():
            left.unlink()
        site.world.advance(30)
        [now] = await site.sums()
        assert "was removed or replaced" in caplog.text
        assert now["gpu_seconds_held"] == 30
        await site.killed()
        assert (await site.sums())[0]["gpu_seconds_held"] == 30

    told(story, path)
