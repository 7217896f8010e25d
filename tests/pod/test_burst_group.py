"""One set of workers, spoken to as ranks do."""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.pod.burst.group import Group
from gateway.pod.burst.journal import Journal
from gateway.protocol import burst
from gateway.protocol.burst import Plan, Process, Size


class Ranks:
    """So many of one process each that nobody starts: the test speaks for them. ``heard``: what their group passes on."""

    def __init__(self, folder: Path, count: int, elsewhere: bool = False, argv: Sequence[str] = ()) -> None:
        """``argv``: of a process that is started beside them, and speaks for itself."""
        self.heard: list[dict[str, Any]] = []
        self._selector = selectors.DefaultSelector()
        processes = [vars(Process(argv=[], number=number, after="never")) for number in range(count)]
        processes += [vars(Process(argv=list(argv), number=count))] if argv else []
        plan, journal = Plan(size={}, env={}, cwd="/"), Journal(folder / "journal", 1 << 20)
        size = Size(number=1, workers=1, processes=processes)
        self.group = Group(folder, 1, size, plan, self._selector, journal, self._hear, 0o022, elsewhere)
        self._lines = [self._come(folder, number) for number in range(count)]

    def say(self, *words: tuple[int, dict[str, Any]]) -> None:
        """All of them before the agent looks."""
        for rank, word in words:
            self._lines[rank].sendall(json.dumps(word).encode() + b"\n")
        self.hear()

    def hear(self, seconds: float = 0) -> None:
        """What they have said, the first of it within so many seconds."""
        while ready := self._selector.select(seconds):
            seconds = 0
            for key, _ in ready:
                key.data()

    def close(self) -> None:
        for each in self._lines:
            each.close()
        self.group.close()

    def _hear(self, group: Group, rank: Any, event: dict[str, Any]) -> None:
        self.heard.append(event)

    def _come(self, folder: Path, number: int) -> socket.socket:
        line, pipes = socket.socket(socket.AF_UNIX), [os.pipe(), os.pipe()]
        line.connect(str(folder / burst.socket_name(1)))
        hello = json.dumps({"t": burst.HELLO, "rank": number, "pid": 1 << 22}).encode() + b"\n"
        socket.send_fds(line, [hello], [reader for reader, _ in pipes])
        for ends in pipes:
            for end in ends:
                os.close(end)
        return line


def failed(at: float) -> dict[str, Any]:
    return {"t": burst.FAILED, "at": at, "name": "x", "text": "", "raised": True}


AT_ITS_END = """
import json, os, socket
line, pipes = socket.socket(socket.AF_UNIX), [os.pipe(), os.pipe()]
line.connect(os.environ["ELASTIC_BURST"])
words = [{"t": "hello", "rank": 0, "pid": os.getpid()}, {"t": "prepared"}, {"t": "left"}]
socket.send_fds(line, ["".join(json.dumps(word) + "\\n" for word in words).encode()], [reader for reader, _ in pipes])
"""


def test_a_group_is_through_as_soon_as_the_processes_of_its_ranks_have_ended(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 0, argv=[sys.executable, "-c", AT_ITS_END])
    ranks.group.turn(0.0)
    while not ranks.group.left:
        ranks.hear(10)
    [pid] = [rank.pid for rank in ranks.group.meeting.ranks.values()]
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has reaped it
    assert ranks.group.through(0.0) and ranks.group.prepared
    assert ranks.heard == [], "all of it is between a rank and its agent"
    ranks.close()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_rank_that_failed_first_is_the_cause_though_another_is_heard_first(tmp_path: Path, order: tuple[int, int]) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.say(*((rank, failed(at=10.0 - rank)) for rank in order))
    assert ranks.group.failed is not None and ranks.group.failed[0].number == 1
    ranks.close()


def test_a_question_of_elsewhere_is_answered_once_for_all_ranks_by_the_furthest(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, elsewhere=True)
    ranks.group.ask(3)
    ranks.say((1, {"t": burst.AT, "asked": 3, "commits": 7}))
    assert not ranks.heard
    ranks.say((0, {"t": burst.AT, "asked": 2, "commits": 9}), (0, {"t": burst.AT, "asked": 3, "commits": 6}))
    assert [(each["t"], each["asked"], each["commits"]) for each in ranks.heard] == [(burst.AT, 3, 7)]
    ranks.close()


def test_a_rank_that_is_through_while_another_goes_on_is_told(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, elsewhere=True)
    assert not ranks.group.partly_through
    ranks.say((1, {"t": burst.DONE}))
    assert ranks.group.partly_through
    ranks.say((0, {"t": burst.DONE}))
    assert not ranks.group.partly_through
    ranks.close()
