"""The journal of an elastic burst in pods: what is written is enough for the next gateway to go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.burst.chorus import Chorus
from gateway.burst.course import COURSE
from gateway.burst.record import Folder
from gateway.protocol import burst


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def begun(folder: Folder) -> Chorus:
    chorus = Chorus.of(folder, restartable=False)
    for name in ("a", "b"):
        chorus.decide({"t": COURSE, "do": "know", "name": name})
    chorus.decide({"t": COURSE, "do": "group", "number": 1, "pods": [0, 1]})
    chorus.decide({"t": COURSE, "do": "go", "number": 1, "state": None})
    return chorus


def say(chorus: Chorus, pod: int, kind: str, **fields: Any) -> None:
    data = burst.line({"t": kind, "at": 1.0, "group": 1, **fields})
    at = chorus.upto.get(pod, 0)
    assert chorus.take(pod, at, data) == at + len(data)


def events(folder: Folder, kind: str) -> list[dict[str, Any]]:
    return [event for line in folder.lines() if (event := json.loads(line))["t"] == kind]


def test_the_next_gateway_stands_where_this_one_stood(folder: Folder) -> None:
    chorus = begun(folder)
    say(chorus, 0, burst.READY)
    say(chorus, 0, burst.COMMITS)
    (folder.path / "state.1.1").touch()
    say(chorus, 0, burst.SAVED, file="state.1.1", text="step 5")
    chorus.decide({"t": COURSE, "do": "ask", "asked": 1})
    say(chorus, 1, burst.AT, asked=1, commits=7)
    again = Chorus.of(folder, restartable=False)
    assert (again.upto, again.world, again.course.saved, again.course.commits) == (chorus.upto, 2, ("state.1.1", "step 5"), True)
    assert again.course.orders(1) == chorus.course.orders(1)
    say(again, 0, burst.AT, asked=1, commits=6)
    assert again.course._at == {0: 6, 1: 7}


def test_people_are_told_how_many_run_how_far_they_are_and_what_they_print(folder: Folder) -> None:
    chorus = begun(folder)
    say(chorus, 0, burst.READY)
    say(chorus, 1, burst.READY)
    (folder.path / "state.1.1").touch()
    say(chorus, 0, burst.SAVED, file="state.1.1", text="step 5")
    say(chorus, 1, burst.OUT, rank=1, name="stdout", text="x")
    assert [(event["running"], event["of"]) for event in events(folder, burst.STATE)] == [(0, 2), (1, 2), (2, 2)]
    assert [event["text"] for event in events(folder, burst.STEP)] == ["step 5"]
    assert [event["rank"] for event in events(folder, burst.OUT)] == [1]


def test_a_state_that_never_arrived_is_not_gone_on_from_and_one_that_is_of_no_use_is_removed(folder: Folder) -> None:
    chorus = begun(folder)
    for number in (1, 2):
        (folder.path / f"state.1.{number}").touch()
        say(chorus, 0, burst.SAVED, file=f"state.1.{number}", text="")
    assert not (folder.path / "state.1.1").exists()
    say(chorus, 0, burst.SAVED, file="state.1.3", text="")
    assert chorus.course.saved == ("state.1.2", "")


def test_the_state_that_workers_go_on_from_stays_as_long_as_one_may_fetch_it(folder: Folder) -> None:
    chorus = begun(folder)
    (folder.path / "state.1.1").touch()
    say(chorus, 0, burst.SAVED, file="state.1.1", text="")
    chorus.decide({"t": COURSE, "do": "group", "number": 2, "pods": [0]})
    chorus.decide({"t": COURSE, "do": "go", "number": 2, "state": "state.1.1"})
    (folder.path / "state.2.2").touch()
    say(chorus, 0, burst.SAVED, group=2, file="state.2.2", text="")
    assert (folder.path / "state.1.1").exists()
