"""The rules by themselves."""

from __future__ import annotations

import math

import pytest

from gateway.leases.policy import NEVER, Policy, ends_at, gathers_at, gives_up_at, why_it_yields, yields_at
from gateway.leases.record import KernelRecord
from gateway.protocol.errors import SettingError
from gateway.protocol.model import Phase


def holder(**fields: object) -> KernelRecord:
    record = KernelRecord("k", "ana", 1, "local", "", "", 1, 100.0, phase=Phase.HOLDING, gpus=("g0",), got_at=100.0, idle_since=150.0)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def test_a_policy_without_rules_never_ends_a_lease_and_yields_at_once():
    assert ends_at(Policy(), holder())[0] == NEVER
    assert yields_at(Policy(), holder()) == 100.0
    assert gives_up_at(Policy(), holder()) == NEVER


def test_an_idle_lease_ends_after_the_idle_timeout():
    assert ends_at(Policy(idle_timeout=120), holder()) == (270.0, "idle")
    assert ends_at(Policy(idle_timeout=0), holder()) == (150.0, "idle")


def test_a_busy_lease_has_no_end():
    assert ends_at(Policy(idle_timeout=0), holder(executing=True, idle_since=None))[0] == NEVER


def test_minimum_hold_binds_waiters_and_not_the_idle_timeout():
    policy = Policy(idle_timeout=0, min_hold=500)
    assert yields_at(policy, holder()) == 600.0
    assert ends_at(policy, holder())[0] == 150.0


def test_a_users_hold_keeps_the_gpu_from_both():
    policy = Policy(idle_timeout=10, min_hold=5)
    assert yields_at(policy, holder(hold_until=900.0)) == 900.0
    assert ends_at(policy, holder(hold_until=900.0))[0] == 900.0


def test_maximum_hold_bounds_the_users_hold():
    policy = Policy(idle_timeout=10, max_hold=300)
    assert yields_at(policy, holder(hold_until=9000.0)) == 400.0
    assert ends_at(policy, holder(hold_until=9000.0))[0] == 400.0


def test_maximum_hold_zero_means_after_each_cell_whatever_the_minimum():
    assert yields_at(Policy(min_hold=60, max_hold=0), holder()) == 100.0


def test_without_reclaim_only_the_maximum_hold_serves_waiters():
    assert yields_at(Policy(reclaim=False), holder()) == NEVER
    assert yields_at(Policy(reclaim=False, max_hold=40), holder()) == 140.0
    assert why_it_yields(Policy(reclaim=False, max_hold=40), holder(), 140.0) == "max_hold"
    assert why_it_yields(Policy(max_hold=40), holder(), 139.0) == "reclaimed"


def test_a_fixed_lease_is_never_parked():
    policy = Policy(idle_timeout=0, max_hold=0)
    assert yields_at(policy, holder(fixed=True)) == ends_at(policy, holder(fixed=True, release_asked=True))[0] == NEVER


def test_a_refused_park_is_left_alone_for_a_while_unless_the_user_asks():
    policy = Policy(idle_timeout=0)
    assert yields_at(policy, holder(refused_until=700.0)) == ends_at(policy, holder(refused_until=700.0))[0] == 700.0
    assert ends_at(policy, holder(refused_until=700.0, release_asked=True)) == (150.0, "asked")


def test_gathering_for_a_big_request_begins_after_its_patience():
    waiter = holder(wanted_since=50.0)
    assert gathers_at(Policy(reserve_after=60), waiter) == 110.0
    assert gathers_at(Policy(reserve_after=0), waiter) == 50.0
    assert gathers_at(Policy(reserve_after=None), waiter) == NEVER


@pytest.mark.parametrize(
    "rule",
    [{"idle_timeout": -1}, {"min_hold": math.nan}, {"min_hold": None}, {"usage_half_life": 0}, {"park_backoff": 0}, {"max_hold": "5"}],
)
def test_a_rule_that_cannot_hold_is_refused_by_name(rule: dict[str, object]):
    with pytest.raises(SettingError, match=next(iter(rule))):
        Policy(**rule)
