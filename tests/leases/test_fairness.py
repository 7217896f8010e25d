"""Whose turn it is."""

from __future__ import annotations

import pytest

from gateway.leases.fairness import Usage, fair_order
from gateway.leases.record import KernelRecord


def waiter(name: str, since: float, count: int = 1) -> KernelRecord:
    return KernelRecord(name, name[0], count, "local", "", "", int(name[1:]), since, wanted_since=since)


def order(usage: Usage, *waiters: KernelRecord, turn: float = 10.0, now: float = 100.0) -> list[str]:
    by_user: dict[str, list[KernelRecord]] = {}
    for record in waiters:
        by_user.setdefault(record.user, []).append(record)
    return [record.kernel_id for record in fair_order(by_user, usage, turn, now)]


@pytest.mark.parametrize("half_life", [None, 60.0, 3600.0])
def test_gpu_seconds_are_those_held(half_life: float | None):
    usage = Usage(half_life)
    usage.change("a", 2, 1e6)
    assert usage.of("a", 1e6) == pytest.approx(0, abs=1e-6)
    assert usage.of("a", 1e6 + 0.5) == pytest.approx(1.0, rel=0.01)
    assert usage.held("a") == 2


def test_use_counts_half_after_each_half_life():
    usage = Usage(100.0)
    usage.change("a", 1, 0.0)
    usage.change("a", -1, 1.0)
    had = usage.of("a", 1.0)
    assert usage.of("a", 101.0) == pytest.approx(had / 2)
    assert usage.of("a", 301.0) == pytest.approx(had / 8)


def test_without_a_half_life_use_counts_for_ever():
    usage = Usage(None)
    usage.change("a", 1, 10.0)
    usage.change("a", -1, 20.0)
    assert usage.of("a", 1e9) == pytest.approx(10.0)


def test_a_changed_half_life_keeps_what_was_had():
    usage = Usage(None)
    usage.change("a", 1, 0.0)
    usage.change("a", -1, 50.0)
    usage.set_half_life(100.0, 50.0)
    assert usage.of("a", 50.0) == pytest.approx(50.0)
    assert usage.of("a", 150.0) == pytest.approx(25.0)


def test_years_of_uptime_do_not_wear_the_numbers_out():
    usage, now = Usage(60.0), 0.0
    for _ in range(50):
        now += 1e7
        usage.change("a", 1, now)
        usage.change("a", -1, now + 60)
    assert usage.of("a", now + 60) == pytest.approx(60 / 2 / 0.6931, rel=0.01)


def test_one_who_holds_for_ever_has_a_bounded_use():
    usage = Usage(60.0)
    usage.change("a", 1, 0.0)
    assert usage.of("a", 1e7) == pytest.approx(60 / 0.6931, rel=0.01)


def test_the_user_with_least_use_comes_first():
    usage = Usage(3600.0)
    usage.change("a", 1, 0.0)
    usage.change("a", -1, 50.0)
    usage.change("b", 1, 0.0)
    usage.change("b", -1, 20.0)
    assert order(usage, waiter("a1", 60), waiter("b1", 70), waiter("c1", 80)) == ["c1", "b1", "a1"]


def test_within_a_user_first_come_is_first_served():
    assert order(Usage(None), waiter("a3", 1), waiter("a1", 2), waiter("a2", 3)) == ["a3", "a1", "a2"]


def test_equal_users_alternate_however_many_kernels_each_has():
    waiters = [waiter("a1", 1), waiter("a2", 1), waiter("a3", 1), waiter("b1", 2), waiter("b2", 2)]
    assert order(Usage(None), *waiters) == ["a1", "b1", "a2", "b2", "a3"]


def test_gpus_held_now_count_as_use_to_come():
    usage = Usage(None)
    usage.change("a", 3, 100.0)
    assert order(usage, waiter("a1", 1), waiter("b1", 2), waiter("b2", 2)) == ["b1", "b2", "a1"]


def test_a_big_request_costs_its_users_next_one_as_many_turns():
    assert order(Usage(None), waiter("a1", 1, 4), waiter("a2", 1), waiter("b1", 2), waiter("b2", 2)) == ["a1", "b1", "b2", "a2"]
