"""The policy file: what it may say, and that what can't hold is refused with its line."""

from __future__ import annotations

import pytest

from gateway.broker.policy_file import read_changes, read_file
from gateway.protocol.errors import SettingError

GOOD = """\
# who gets what
site:
  idle_timeout: 2m
flavors:
  a100: {max_hold: 8h, gpus_per_user: none}
kernelspecs:
  elastic-python: {min_hold: 10}
groups:
  students:
    members: [ana, "123", on]
    gpus_per_user: 1
    weight: 0.5
users:
  ana: {idle_timeout: 5, quiet_hours: "22:00-06:00", reclaim: no}
  bo:
"""


def test_each_value_is_read_with_its_line_and_durations_as_people_write_them():
    book = read_file(GOOD)
    assert (book.said["site", ""]["idle_timeout"].value, book.said["site", ""]["idle_timeout"].line) == (120.0, 3)
    assert (book.said["flavor", "a100"]["max_hold"].value, book.said["flavor", "a100"]["max_hold"].line) == (28800.0, 5)
    assert book.said["flavor", "a100"]["gpus_per_user"].value is None
    assert book.members["students"].value == ("ana", "123", "on")
    assert {name: each.value for name, each in book.said["user", "ana"].items()} == {
        "idle_timeout": 5.0, "quiet_hours": "22:00-06:00", "reclaim": False
    }  # fmt: skip
    assert book.said["user", "bo"] == {}


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "site:\n", '{"site": {"idle_timeout": 5}}'])
def test_an_empty_file_and_json_are_fine(text: str):
    read_file(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("site:\n  idle_timeout: soon\n", r"line 2: idle_timeout can't be \"soon\": it must be a number of seconds"),
        ("site:\n  idle_timeout: -1\n", r"line 2: idle_timeout can't be -1"),
        ("site:\n  idle_timeout: .nan\n", r"line 2: idle_timeout"),
        ("site:\n  min_hold:\n", r"line 2: min_hold can't be null"),
        ("site:\n  idle_timeout: [1]\n", r"line 2: idle_timeout can't be \[\]"),
        ("site:\n  idle_timeot: 5\n", r"line 2: there is no policy 'idle_timeot'. Did you mean idle_timeout\?"),
        ("site:\n  priority: 1001\n", r"line 2: priority can't be 1001: it must be a whole number from -1000 to 1000"),
        ("site:\n  priority: true\n", r"line 2: priority can't be true: it must be a whole number"),
        ("site:\n  quiet_hours: late\n", r"line 2: quiet_hours can't be \"late\": 'late' is no time of day"),
        ("user:\n  ana: {}\n", r"line 1: there is no section 'user'. Did you mean users\?"),
        ("users:\n  ana:\n    park_backoff: 5\n", r"line 3: park_backoff holds for the whole site"),
        ("users:\n  ana:\n    use_interval: 5\n", r"line 3: use_interval holds for the whole site"),
        ("flavors:\n  a100: {weight: 2}\n", r"line 2: weight is a user's share"),
        ("users:\n  ana: {members: [bo]}\n", r"line 2: there is no policy 'members'"),
        ("groups:\n  all: {members: ana}\n", r"line 2: members of groups.all must be a list of names"),
        ("groups:\n  all:\n    members: [[ana]]\n", r"line 3: members of groups.all"),
        ("site: {idle_timeout: 1}\nusers: {}\nsite: {}\n", r"line 3: 'site' stands in line 1 already"),
        ("site:\n  idle_timeout: 5\n idle: 3\n", r"line 3: this is no YAML"),
        ("site: [", r"line \d: this is no YAML"),
        ("site: " + "[" * 5000, r"line 1: this is no YAML: it is nested too deep"),
        ("- site", r"line 1: the policy must have site, flavors"),
        ("site: &a {idle_timeout: 1}\nusers: {ana: {<<: *a}}", r"line 2: users.ana must have settings"),
        ("site:\n  policy_file: other.yaml\n", r"line 2: there is no policy 'policy_file'"),
        ("\x00", r"line 1: this is no YAML"),
    ],
)
def test_what_can_not_hold_is_refused_with_line_and_reason(text: str, words: str):
    with pytest.raises(SettingError, match=words):
        read_file(text)


def test_a_request_may_leave_site_out_and_has_no_lines():
    book = read_changes({"idle_timeout": None, "users": {"ana": {"idle_timeout": "1m"}}})
    assert book.said["site", ""]["idle_timeout"].value is None
    assert book.said["user", "ana"]["idle_timeout"].value == 60.0
    with pytest.raises(SettingError, match=r"^There is no policy 'x'"):
        read_changes({"x": 1})
    for bad in (
        {"users": 5},
        {"users": {"ana": 5}},
        {"site": 3, "idle_timeout": 1},
        {"users": {"": {}}},
        {"groups": {"g": {"members": [1]}}},
    ):
        with pytest.raises(SettingError):
            read_changes(bad)


def test_nothing_is_ever_made_of_a_tag():
    assert read_file("site: !!python/object:os.system {}").said["site", ""] == {}
    with pytest.raises(SettingError, match="line 1: idle_timeout"):
        read_file("site: {idle_timeout: !!python/object/apply:os.getpid []}")
