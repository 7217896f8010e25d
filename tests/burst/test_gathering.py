"""What the ranks' pods say becomes one journal: whole, once, and the first failure is the cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.burst.gathering import Gathered
from gateway.burst.record import Folder
from gateway.burst.verdict import verdict
from gateway.protocol import burst
from gateway.protocol.errors import BadRequest


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def said(kind: str, **fields: Any) -> bytes:
    return burst.line({"t": kind, "at": 1.0, **fields})


def printed(folder: Folder) -> list[tuple[int, str]]:
    events = [json.loads(line) for line in folder.lines()]
    return [(event["rank"], event["text"]) for event in events if event["t"] == burst.OUT]


def out(rank: int, text: str) -> bytes:
    return said(burst.OUT, rank=rank, name="stdout", text=text)


def test_what_is_sent_again_is_taken_once_and_what_is_missing_is_asked_for(folder: Folder) -> None:
    gathered = Gathered(folder, 2, 2)
    first, second = out(0, "a"), out(0, "b")
    assert gathered.take(0, 0, first) == len(first)
    assert gathered.take(0, 0, first) == len(first)
    assert gathered.take(0, len(first) + len(second), out(0, "c")) == len(first)
    assert gathered.take(0, len(first), second) == len(first) + len(second)
    assert printed(folder) == [(0, "a"), (0, "b")]


def test_each_pods_journal_is_counted_by_itself_and_a_next_gateway_goes_on_behind_the_last_line(folder: Folder) -> None:
    gathered = Gathered(folder, 2, 2)
    gathered.take(0, 0, said(burst.STATE, running=1, of=1) + out(0, "a"))
    gathered.take(1, 0, said(burst.STATE, running=1, of=1) + said(burst.FAILED, rank=1, name="ValueError: x") + out(1, "b"))
    again = Gathered.again(folder, 2, 2)
    assert (again.upto, again.running, set(again.failed)) == (gathered.upto, {0: 1, 1: 1}, {1})
    assert again.take(1, again.upto[1], said(burst.END, outcome="error", message="")) > again.upto[0]
    assert set(Gathered.again(folder, 2, 2).ended) == {1}


def test_the_notebook_is_told_how_many_run_and_reads_no_end_but_the_bursts(folder: Folder) -> None:
    gathered = Gathered(folder, 2, 2)
    for pod in (0, 1):
        gathered.take(pod, 0, said(burst.STATE, running=1, of=1) + said(burst.END, outcome="ok", message=""))
    events = [json.loads(line) for line in folder.lines()]
    assert [(event["running"], event["of"]) for event in events if event["t"] == burst.STATE] == [(1, 2), (2, 2)]
    assert folder.end() is None
    assert verdict(gathered) == (burst.OK, "", None)


def test_a_pod_that_is_none_of_the_ranks_and_lines_that_are_none_change_nothing(folder: Folder) -> None:
    gathered = Gathered(folder, 2, 2)
    with pytest.raises(BadRequest):
        gathered.take(2, 0, out(2, "a"))
    gathered.take(0, 0, b"no json\n[1]\n" + out(0, "a"))
    assert printed(folder) == [(0, "a")]


def test_the_failure_that_came_first_is_the_cause_whoever_was_heard_first(folder: Folder) -> None:
    gathered = Gathered(folder, 3, 3)
    gathered.take(0, 0, burst.line({"t": burst.FAILED, "at": 5.2, "rank": 0, "name": "ConnectionError: closed by peer"}))
    gathered.take(1, 0, burst.line({"t": burst.FAILED, "at": 5.1, "rank": 1, "name": "ValueError: boom"}))
    outcome, message, event = verdict(gathered)
    assert (outcome, message) == (burst.ERROR, "Rank 1 failed: ValueError: boom")
    assert event is not None and event["rank"] == 1


@pytest.mark.parametrize(
    "follows", ["RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer", "DistNetworkError: x", "BrokenPipeError: x"]
)
def test_who_only_misses_another_is_not_the_cause_though_its_nodes_clock_is_late(folder: Folder, follows: str) -> None:
    gathered = Gathered(folder, 2, 2)
    gathered.take(0, 0, burst.line({"t": burst.FAILED, "at": 4.0, "rank": 0, "name": follows}))
    gathered.take(1, 0, burst.line({"t": burst.FAILED, "at": 5.0, "rank": 1, "name": "ValueError: boom"}))
    assert verdict(gathered)[1] == "Rank 1 failed: ValueError: boom"


def test_a_process_that_died_counts_over_a_pod_that_was_told_to_end(folder: Folder) -> None:
    gathered = Gathered(folder, 2, 2)
    gathered.take(0, 0, burst.line({"t": burst.END, "at": 1.0, "outcome": burst.CANCELLED, "message": "The cluster has ended its pod."}))
    assert verdict(gathered)[:2] == (burst.LOST, "Rank 0: The cluster has ended its pod.")
    gathered.take(1, 0, burst.line({"t": burst.END, "at": 2.0, "outcome": burst.ERROR, "message": "Rank 1 was killed."}))
    assert verdict(gathered)[:2] == (burst.ERROR, "Rank 1 was killed.")
