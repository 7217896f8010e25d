"""When a kernel that died is started again, and when it is given up."""

from __future__ import annotations

import asyncio
import logging

import pytest
import traitlets

from gateway.server import restarter as module
from gateway.server.restarter import ElasticRestarter


class Restarter(ElasticRestarter):
    kernel_manager = traitlets.Any()


class Kernel:
    kernel_id = "k1"

    def __init__(self, fails=False):
        self.restarts, self.fails = 0, fails

    async def restart_kernel(self, now):
        self.restarts += 1
        if self.fails:
            raise RuntimeError("no")


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def time(self):
            return self.now

    monkeypatch.setattr(module, "time", Clock())
    return module.time


def story(tell, **kwargs):
    async def run():
        kernel = Kernel(**kwargs)
        found = Restarter(kernel_manager=kernel, log=logging.getLogger("test"))
        fired = []
        found.add_callback(lambda: fired.append("dead"), "dead")
        found.start()
        await tell(found, kernel, fired)

    asyncio.run(run())


def test_a_kernel_that_worked_is_started_again_at_once(clock):
    async def tell(found, kernel, fired):
        assert found.died(worth_it=True)
        await asyncio.sleep(0)
        assert kernel.restarts == 1
        assert fired == []

    story(tell)


def test_a_kernel_that_never_worked_is_given_up(clock):
    async def tell(found, kernel, fired):
        assert not found.died(worth_it=False)
        assert (kernel.restarts, fired) == (0, ["dead"])

    story(tell)


def test_a_row_of_quick_deaths_ends(clock):
    async def tell(found, kernel, fired):
        for _ in range(found.restart_limit):
            assert found.died(worth_it=True)
            found.start()
        assert not found.died(worth_it=True)
        assert fired == ["dead"]

    story(tell)


def test_a_kernel_that_has_lived_for_a_while_begins_a_new_row(clock):
    async def tell(found, kernel, fired):
        for _ in range(3 * found.restart_limit):
            clock.now += found.stable_start_time + 1
            assert found.died(worth_it=True)
            found.start()
        assert fired == []

    story(tell)


def test_a_restart_that_fails_is_a_death(clock):
    async def tell(found, kernel, fired):
        found.died(worth_it=True)
        await asyncio.sleep(0)
        assert fired == ["dead"]

    story(tell, fails=True)


def test_a_restart_by_hand_is_not_doubled(clock):
    async def tell(found, kernel, fired):
        found.died(worth_it=True)
        found.stop()
        await asyncio.sleep(0)
        assert kernel.restarts == 0

    story(tell)


def test_nobody_who_was_stopped_restarts(clock):
    async def tell(found, kernel, fired):
        found.stop()
        assert not found.died(worth_it=True)
        assert (kernel.restarts, fired) == (0, [])

    story(tell)


def test_a_kernel_that_is_being_ended_is_not_restarted_behind_its_back(clock):
    async def tell(found, kernel, fired):
        found.died(worth_it=True)
        found.cancel()
        await asyncio.sleep(0)
        assert kernel.restarts == 0

    story(tell)
