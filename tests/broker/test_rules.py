"""The rules in force: what counts over what, what is shown of it, and that a change is whole or not at all."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.rules import Rules
from gateway.leases.record import KernelRecord
from gateway.protocol.errors import BadRequest, ElasticError, SettingError
from gateway.settings import Leases

ANA = KernelRecord("k", "ana", 1, "local", "torch", "", 1, 0.0)
NIGHT, DAY = datetime(2026, 11, 30, 23, tzinfo=UTC), datetime(2026, 11, 30, 12, tzinfo=UTC)


def written(folder: Path, text: str) -> str:
    file = folder / "policy.yaml"
    file.write_text(text)
    return str(file)


def held(rules: Rules, setting: str, record: KernelRecord = ANA, flavor: str = "a100") -> dict[str, Any]:
    return rules.explain(record, flavor)["settings"][setting]


def test_a_change_is_in_force_at_once():
    told: list[Any] = []
    rules = Rules(Leases(), told.append)
    rules.change({"idle_timeout": 7, "max_hold": 60, "reclaim": False})
    assert (rules.leases.policy().idle_timeout, told[-1].site.max_hold, told[-1].site.reclaim) == (7, 60, False)
    assert rules.show()["max_hold"] == 60


@pytest.mark.parametrize(
    "changes",
    [
        {"min_hold": 9, "idle_timeout": "soon"},
        {"min_hold": 9, "idle_timeout": -1},
        {"min_hold": 9, "nonsense": 1},
        {"min_hold": float("nan")},
        {"min_hold": 9, "users": {"ana": {"idle_timeout": []}}},
        {"min_hold": 9, "usage_half_life": 0},
        {"min_hold": 10**400},
        {"gpus_per_user": 10**400},
    ],
)
def test_a_bad_change_changes_nothing_and_says_why(changes: dict[str, Any]):
    rules = Rules(Leases(), lambda levels: pytest.fail("it was put in force"))
    before = rules.show()
    with pytest.raises(BadRequest) as refused:
        rules.change(changes)
    assert str(refused.value)
    assert rules.show() == before


def test_a_live_change_counts_over_the_file_over_the_configuration_and_each_source_is_shown(tmp_path: Path):
    path = written(tmp_path, "site:\n  min_hold: 2\nusers:\n  ana:\n    idle_timeout: 5\n    max_hold: 60\n")
    rules = Rules(Leases(idle_timeout=90.0, policy_file=path))
    rules.change({"users": {"ana": {"max_hold": 30}}})
    idle = held(rules, "idle_timeout")
    assert idle == {
        "value": 5.0, "level": "user", "name": "ana", "source": f"{path}, line 5",
        "over": [{"value": 90.0, "level": "site", "name": "", "source": "configuration"}],
    }  # fmt: skip
    assert held(rules, "max_hold")["source"].startswith("changed while running, 20")
    assert held(rules, "min_hold") == {"value": 2.0, "level": "site", "name": "", "source": f"{path}, line 2", "over": []}
    assert held(rules, "queue_timeout")["source"] == "default"
    assert set(rules.explain(ANA, "")["settings"]) == set(Leases.class_trait_names(config=True)) - {"policy_file"}


def test_null_for_a_user_takes_the_live_changes_back_and_null_for_a_setting_is_a_value():
    rules = Rules(Leases())
    rules.change({"users": {"ana": {"idle_timeout": None}}, "groups": {"g": {"members": ["ana"], "max_hold": 9}}})
    assert (held(rules, "idle_timeout")["value"], held(rules, "max_hold")["value"]) == (None, 9.0)
    rules.change({"users": {"ana": None}, "groups": {"g": None}, "site": {"max_hold": None}})
    assert (held(rules, "idle_timeout")["value"], held(rules, "max_hold")["level"]) == (120.0, "site")
    assert rules.show()["users"] == rules.show()["groups"] == {}


def test_the_smallest_quota_is_shown_first_with_those_it_counts_over(tmp_path: Path):
    path = written(tmp_path, "groups: {all: {members: [ana], gpus_per_user: 2}}\nusers: {ana: {gpus_per_user: 3}}")
    quota = held(Rules(Leases(gpus_per_user=4, policy_file=path)), "gpus_per_user")
    assert [quota["value"], *(each["value"] for each in quota["over"])] == [2, 3, 4]


def test_a_file_that_can_not_hold_stops_the_start(tmp_path: Path):
    with pytest.raises(SettingError, match=r"policy.yaml, line 1: there is no section"):
        Rules(Leases(policy_file=written(tmp_path, "sites: {}")))
    with pytest.raises(SettingError, match="can't be read: No such file"):
        Rules(Leases(policy_file=str(tmp_path / "none.yaml")))


def looked(rules: Rules, times: int = 2) -> None:
    async def looks() -> None:
        for _ in range(times):
            await rules.look()

    asyncio.run(looks())


def test_a_changed_file_is_in_force_at_the_second_look_and_without_any_restart(tmp_path: Path):
    told: list[Any] = []
    rules = Rules(Leases(policy_file=written(tmp_path, "users: {ana: {idle_timeout: 5}}")), told.append)
    looked(rules)
    assert told == []
    written(tmp_path, "site: {min_hold: 1}\nusers: {ana: {idle_timeout: 50}}")
    looked(rules, 1)
    assert told == []  # it may be half written
    looked(rules, 1)
    assert told[-1].of("ana", "", "").idle_timeout == 50.0
    assert (told[-1].site.min_hold, rules.leases.min_hold) == (1.0, 1.0)
    written(tmp_path, "{}")
    looked(rules)
    assert (rules.leases.min_hold, told[-1].plain, rules.show()["file"]["error"]) == (5.0, True, "")


def test_a_file_that_no_longer_holds_leaves_the_old_rules_and_says_line_and_reason(tmp_path: Path):
    path = written(tmp_path, "site: {min_hold: 1}")
    rules = Rules(Leases(policy_file=path))
    for bad, why in (("site:\n  min_hold: x", "line 2: min_hold can't be"), ("site: {usage_half_life: 0}", "line 1: usage_half_life")):
        written(tmp_path, bad)
        looked(rules)
        assert rules.leases.min_hold == 1.0
        assert why in rules.show()["file"]["error"]
    os.unlink(path)
    looked(rules)
    assert rules.leases.min_hold == 1.0
    assert "No such file" in rules.show()["file"]["error"]
    written(tmp_path, "site: {min_hold: 3}")
    looked(rules)
    assert (rules.leases.min_hold, rules.show()["file"]["error"]) == (3.0, "")


def test_a_config_maps_change_of_links_is_seen(tmp_path: Path):
    for name, seconds in (("..1", 1), ("..2", 2)):
        (tmp_path / name).mkdir()
        written(tmp_path / name, f"site: {{min_hold: {seconds}}}")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    rules = Rules(Leases(policy_file=str(tmp_path / "policy.yaml")))
    (tmp_path / "..new").symlink_to("..2")
    os.replace(tmp_path / "..new", tmp_path / "..data")
    looked(rules)
    assert rules.leases.min_hold == 2.0


def test_of_file_and_live_change_the_later_word_on_a_setting_holds(tmp_path: Path):
    rules = Rules(Leases(policy_file=written(tmp_path, "site: {min_hold: 1, max_hold: 10}\nusers: {ana: {idle_timeout: 5}}")))
    rules.change({"min_hold": 7, "queue_timeout": 60, "users": {"ana": {"idle_timeout": 6, "max_hold": 8}}}, by="ops")
    written(tmp_path, "site: {min_hold: 1, max_hold: 20}\nusers: {ana: {idle_timeout: 5}}")  # nothing new of what was changed
    looked(rules)
    assert (rules.leases.min_hold, rules.leases.max_hold) == (7.0, 20.0)
    written(tmp_path, "site: {min_hold: 2, max_hold: 20}\nusers: {ana: {max_hold: 9}}")
    looked(rules)
    assert (rules.leases.min_hold, rules.leases.queue_timeout) == (2.0, 60.0)
    assert (held(rules, "idle_timeout")["level"], held(rules, "max_hold")["value"]) == ("site", 9.0)
    assert [(each["section"], each["setting"], each["by"]) for each in rules.show()["changes"]] == [("site", "queue_timeout", "ops")]


def test_null_for_the_site_takes_its_live_changes_back(tmp_path: Path):
    rules = Rules(Leases(min_hold=3.0))
    rules.change({"min_hold": 7, "users": {"ana": {"max_hold": 8}}})
    rules.change({"site": None})
    assert (rules.leases.min_hold, held(rules, "max_hold")["value"]) == (3.0, 8.0)


class Memory:
    """What outlives a broker."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.full = False

    async def recall(self, name: str) -> str:
        return self.texts.get(name, "")

    async def keep(self, name: str, text: str) -> None:
        if self.full:
            raise ElasticError("No space left on device.")
        self.texts[name] = text


def later(memory: Memory, path: str = "", *told: dict[str, Any], **leases: Any) -> Rules:
    """The next broker, and what it is told."""

    async def life() -> Rules:
        rules = Rules(Leases(policy_file=path, **leases))
        await rules.recall(memory)
        for changes in told:
            await rules.change_and_keep(changes, by="ops")
        return rules

    return asyncio.run(life())


EVERYTHING = {
    "idle_timeout": None, "quiet_hours": "22:00-06:00 UTC", "users": {"ana": {"max_hold": 30, "gpus_per_user": 1}},
    "groups": {"g": {"members": ["ana", "bo"], "weight": 0.5}}, "flavors": {"a100": {"min_hold": 1}},
    "kernelspecs": {"torch": {"priority": -3}},
}  # fmt: skip


def test_live_changes_hold_under_the_next_broker_with_who_made_them_and_when():
    memory = Memory()
    before = later(memory, "", EVERYTHING)
    after = later(memory)
    assert after.show() == before.show()
    assert after.explain(ANA, "a100") == before.explain(ANA, "a100")
    assert held(after, "max_hold")["source"].startswith("changed while running by ops, 20")
    assert after.levels.groups("bo") == ["g"]
    later(
        memory, "", {"users": {"ana": None}, "groups": {"g": None}, "flavors": {"a100": None}, "kernelspecs": {"torch": None}, "site": None}
    )
    assert memory.texts["policy-changes"] == ""
    assert later(memory).show()["changes"] == []


def test_a_file_that_was_changed_while_no_broker_ran_has_the_later_word(tmp_path: Path):
    memory, path = Memory(), written(tmp_path, "site: {min_hold: 1, max_hold: 10}")
    later(memory, path, {"min_hold": 7, "max_hold": 70})
    written(tmp_path, "site: {min_hold: 2, max_hold: 10}")
    rules = later(memory, path)
    assert (rules.leases.min_hold, rules.leases.max_hold) == (2.0, 70.0)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"changes": [{"section": "site"}]}', '{"changes": 3}',
             '{"changes": [{"section": "site", "name": "", "setting": "min_hold", "value": "x", "by": "", "at": "", "file": []}]}'],
)  # fmt: skip
def test_what_was_kept_and_can_not_hold_is_told_and_stops_no_start(text: str):
    memory = Memory()
    memory.texts["policy-changes"] = text
    rules = later(memory)
    asyncio.run(rules._keep())
    assert rules.leases.min_hold == 5.0
    assert "don't count" in rules.show()["unkept"]
    assert memory.texts["policy-changes"] == text, "somebody may still want to read it"


def test_a_change_that_can_not_be_kept_is_in_force_and_says_so_until_it_is_kept():
    memory = Memory()
    memory.full = True
    rules = later(memory, "", {"min_hold": 7})
    assert rules.leases.min_hold == 7.0
    assert "No space left" in rules.show()["unkept"]
    memory.full = False
    asyncio.run(rules.change_and_keep({"max_hold": 8}))
    assert rules.show()["unkept"] == ""
    assert later(memory).leases.min_hold == 7.0


class Slow(Memory):
    """The first text takes longer to be written than the others."""

    first = True

    async def keep(self, name: str, text: str) -> None:
        was, self.first = self.first, False
        for _ in range(3 if was else 0):
            await asyncio.sleep(0)
        await super().keep(name, text)


def test_of_two_changes_at_once_both_are_kept():
    async def life() -> None:
        rules = Rules(Leases())
        await rules.recall(memory)
        await asyncio.gather(rules.change_and_keep({"min_hold": 7}), rules.change_and_keep({"max_hold": 8}))

    memory = Slow()
    asyncio.run(life())
    rules = later(memory)
    assert (rules.leases.min_hold, rules.leases.max_hold) == (7.0, 8.0)


def test_what_is_new_while_something_is_being_kept_is_kept_after_it():
    async def life() -> None:
        rules = Rules(Leases())
        await rules.recall(memory)
        first = asyncio.create_task(rules.change_and_keep({"min_hold": 7}))
        await asyncio.sleep(0)
        rules.belong({"ana": ["students"]}, keep=True)
        await first
        await rules._keep()

    memory = Slow()
    asyncio.run(life())
    assert later(memory).levels.groups("ana") == ["students"]


def test_groups_that_only_a_hub_tells_are_known_to_the_next_broker_and_newer_words_count_more():
    memory = Memory()

    async def before() -> None:
        rules = Rules(Leases())
        await rules.recall(memory)
        rules.belong({"ana": ["students"], "bo": ["staff"]}, keep=True)
        rules.belong({"cy": ["of the users file"]})
        await rules.change_and_keep({})

    async def after() -> Rules:
        rules = Rules(Leases())
        rules.belong({"bo": ["guests"]})  # the users file, which is read before
        await rules.recall(memory)
        return rules

    asyncio.run(before())
    memory.full = True  # nothing new, nothing to be written: whoever lets them in says it with each request
    rules = asyncio.run(after())
    rules.belong({"ana": ["students"]}, keep=True)
    asyncio.run(rules._keep())
    assert rules.unkept == ""
    assert [rules.levels.groups(user) for user in ("ana", "bo", "cy")] == [["students"], ["guests"], []]


def test_quiet_hours_begin_and_end_by_themselves_for_those_they_are_said_of():
    time, told = [DAY], []
    rules = Rules(Leases(quiet_hours="22:00-06:00 UTC"), told.append, lambda: time[0])
    rules.change({"users": {"bo": {"quiet_hours": ""}}})
    assert not told[-1].of("ana", "", "").quiet
    time[0] = NIGHT
    rules.time_passed()
    assert told[-1].of("ana", "", "").quiet
    assert not told[-1].of("bo", "", "").quiet
    count = len(told)
    rules.time_passed()
    assert len(told) == count
    assert held(rules, "quiet_hours") == {"value": "22:00-06:00 UTC", "level": "site", "name": "", "source": "configuration", "over": []}
    bo = KernelRecord("b", "bo", 1, "local", "torch", "", 1, 0.0)
    assert held(rules, "quiet_hours", bo)["value"] == ""
    time[0] = DAY
    rules.time_passed()
    assert not told[-1].of("ana", "", "").quiet
