"""Which rule holds for whom, and what follows in the book."""

from __future__ import annotations

import re

import pytest

from gateway.leases.events import Deny, GpuSeen, Grant
from gateway.leases.levels import Levels
from gateway.leases.policy import Policy
from gateway.protocol.model import Gpu, Phase

from .world import World

ORDER = ["site", "flavor", "kernelspec", "group", "user"]
NAMES = {"flavor": "a100", "kernelspec": "torch", "group": "students", "user": "ana"}


def levels(*said: str, setting: str = "idle_timeout", values: dict[str, object] | None = None) -> Levels:
    layers = {level: {NAMES[level]: {setting: (values or {}).get(level, float(ORDER.index(level)))}} for level in said}
    return Levels(Policy(idle_timeout=0.0), layers, {"students": ["ana"]})


@pytest.mark.parametrize("upto", range(1, 6))
def test_a_user_counts_over_a_group_over_a_kernelspec_over_a_flavor_over_the_site(upto: int):
    found = levels(*ORDER[1:upto])
    assert found.of("ana", "torch", "a100").idle_timeout == upto - 1
    assert [said.level for said in found.said("idle_timeout", "ana", "torch", "a100")] == ORDER[:upto][::-1]


def test_rules_hold_for_those_they_are_said_of_alone():
    found = levels(*ORDER[1:])
    assert found.of("bo", "python", "t4").idle_timeout == 0.0
    assert found.of("bo", "torch", "t4").idle_timeout == ORDER.index("kernelspec")


def test_none_is_a_value_and_counts_over_wider_ones():
    assert levels("group", "user", values={"user": None}).of("ana", "", "").idle_timeout is None


def test_of_two_groups_the_one_that_stands_first_holds():
    layers = {"group": {"staff": {"idle_timeout": 1.0}, "students": {"idle_timeout": 2.0}}}
    members = {"students": ["ana"], "staff": ["ana"]}
    assert Levels(Policy(), layers, members).of("ana", "", "").idle_timeout == 2.0


@pytest.mark.parametrize("setting", ["gpus_per_user", "gpus_per_kernel"])
def test_of_quotas_the_smallest_holds_whoever_says_it(setting: str):
    found = levels("flavor", "group", "user", setting=setting, values={"flavor": 2, "group": 1, "user": None})
    assert getattr(found.of("ana", "torch", "a100"), setting) == 1
    assert [said.value for said in found.said(setting, "ana", "torch", "a100")] == [1, 2, None, None]


def test_a_users_idle_timeout_parks_that_user_and_nobody_else():
    world = World(gpus=2, policy=levels("user", values={"user": 5.0}))
    world.carry(world.book.set_policy(Levels(Policy(idle_timeout=120.0), {"user": {"ana": {"idle_timeout": 5.0}}}), world.now))
    for name in ("ana", "bo"):
        world.kernel(name)
        world.ran(name)
    world.advance(6)
    assert (world.phase("ana"), world.phase("bo")) == (Phase.PARKED, Phase.HOLDING)
    world.advance(115)
    assert world.phase("bo") is Phase.PARKED


def test_a_changed_rule_takes_hold_of_a_lease_that_is_idle_and_of_a_busy_one_at_its_next_idle():
    world = World(gpus=2, idle_timeout=120.0)
    for name in ("k1", "k2"):
        world.kernel(name, "ana")
        world.run(name)
    world.done("k1")
    world.advance(10)
    world.carry(world.book.set_policy(Levels(Policy(idle_timeout=120.0), {"user": {"ana": {"idle_timeout": 5.0}}}), world.now))
    assert (world.phase("k1"), world.phase("k2")) == (Phase.PARKED, Phase.HOLDING)
    world.advance(1000)
    world.done("k2")
    world.advance(4)
    assert world.phase("k2") is Phase.HOLDING
    world.advance(1)
    assert world.phase("k2") is Phase.PARKED


def test_in_quiet_hours_only_waiters_take_a_gpu():
    world = World(policy=Policy(idle_timeout=10.0, quiet=True))
    world.kernel("a")
    world.ran("a")
    world.advance(10_000)
    assert world.phase("a") is Phase.HOLDING
    world.carry(world.book.set_policy(Policy(idle_timeout=10.0), world.now))
    assert world.phase("a") is Phase.PARKED


def test_a_flavors_quota_counts_gpus_of_that_flavor_alone():
    policy = Levels(Policy(), {"flavor": {"a100": {"gpus_per_user": 1}}})
    world = World(gpus=0, policy=policy)
    for uuid, flavor in (("x0", "a100"), ("x1", "a100"), ("y0", "t4")):
        world.tell(GpuSeen(Gpu(uuid, flavor, flavor=flavor)))
    for name, node in (("k1", "t4"), ("k2", "a100"), ("k3", "a100")):
        world.kernel(name, "ana", node=node)
        world.run(name)
    assert [world.phase(name) for name in ("k1", "k2", "k3")] == [Phase.HOLDING, Phase.HOLDING, Phase.WAITING]
    assert "1 GPU of flavor a100 and may hold 1 (gpus_per_user of flavor a100)" in world.places["k3"].quota
    assert world.places["k3"].holders == ("ana (k2.ipynb)",)


def test_on_a_node_of_two_flavors_a_kernel_gets_the_one_that_it_may_have():
    world = World(gpus=0, policy=Levels(Policy(), {"flavor": {"a100": {"gpus_per_kernel": 0}}}))
    for uuid, flavor in (("x0", "a100"), ("y0", "t4")):
        world.tell(GpuSeen(Gpu(uuid, flavor=flavor)))
    world.kernel("k")
    world.run("k")
    assert world.gpus("k") == ("y0",)
    world.kernel("l")
    world.run("l")
    assert world.phase("l") is Phase.WAITING


def test_within_a_quota_a_users_own_idle_kernel_gives_way_and_the_line_says_so():
    world = World(gpus=2, policy=Levels(Policy(min_hold=30.0), {"user": {"ana": {"gpus_per_user": 1}}}))
    world.kernel("k1", "ana")
    world.ran("k1")
    world.kernel("k2", "ana")
    world.run("k2")
    assert world.phase("k2") is Phase.WAITING
    place = world.places["k2"]
    assert place.quota == "you hold 1 GPU and may hold 1 (gpus_per_user of user ana), so one of yours gives its own up first"
    assert place.expected == 30.0
    world.advance(30)
    assert (world.phase("k1"), world.phase("k2")) == (Phase.PARKED, Phase.HOLDING)


def test_two_waiters_of_one_user_do_not_get_past_the_quota_together():
    world = World(gpus=2, gpus_per_user=1, auto=False)
    for name in ("k1", "k2"):
        world.kernel(name, "ana")
    world.settle()
    for name in ("k1", "k2"):
        world.run(name)
    world.hear_all()
    world.settle()
    assert sorted(str(world.phase(name)) for name in ("k1", "k2")) == ["HOLDING", "WAITING"]


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ({"group": {"students": {"gpus_per_user": 1}}}, "one user may hold 1 at a time here.*gpus_per_user of group students"),
        ({"kernelspec": {"torch": {"gpus_per_kernel": 1}}}, "one kernel may have 1 at a time here.*gpus_per_kernel of kernelspec torch"),
    ],
)
def test_a_request_above_a_limit_is_told_which_and_whose(layers: dict, words: str):
    world = World(gpus=4, policy=Levels(Policy(), layers, {"students": ["ana"]}))
    world.kernel("k", "ana", count=2, spec="torch")
    world.run("k")
    denied = world.last(Deny)
    assert denied.reason == "impossible_request"
    assert re.search(words, denied.message), denied.message


def test_the_higher_priority_is_served_first_and_takes_nobodys_running_cell():
    world = World(policy=Levels(Policy(), {"kernelspec": {"urgent": {"priority": 5}}}))
    world.kernel("a")
    world.run("a")
    for name, spec in (("b", ""), ("c", "urgent")):
        world.kernel(name, spec=spec)
        world.run(name)
    assert world.queue() == ["c", "b"]
    assert world.phase("a") is Phase.HOLDING
    world.done("a")
    assert [world.phase(name) for name in ("a", "b", "c")] == [Phase.PARKED, Phase.WAITING, Phase.HOLDING]


def test_a_user_of_twice_the_weight_gets_twice_the_gpu_time():
    world = World(policy=Levels(Policy(usage_half_life=None), {"group": {"staff": {"weight": 2.0}}}, {"staff": ["ana"]}))
    names = {f"{user}{i}": user for i in range(2) for user in ("ana", "bo")}
    for name, user in names.items():
        world.kernel(name, user)
        world.run(name)
    had = {"ana": 0, "bo": 0}
    for _ in range(60):
        holder = next(name for name in names if world.phase(name) is Phase.HOLDING)
        world.advance(10)
        had[names[holder]] += 10
        world.done(holder)
        world.run(holder)
    assert had["ana"] / had["bo"] == pytest.approx(2.0, rel=0.1)


def test_a_user_of_weight_0_is_served_when_nobody_else_waits():
    world = World(policy=Levels(Policy(), {"user": {"guest": {"weight": 0.0}}}))
    for name in ("a", "guest", "b"):
        world.kernel(name)
        world.run(name)
    assert world.queue() == ["b", "guest"]
    world.die("a")
    world.die("b")
    assert isinstance(world.log[-1], Grant) and world.log[-1].kernel_id == "guest"
