"""One set of workers, spoken to as ranks do."""

from __future__ import annotations

import json
import os
import selectors
import socket
from pathlib import Path
from typing import Any

import pytest

from gateway.pod.burst.group import Group
from gateway.pod.burst.journal import Journal
from gateway.protocol import burst
from gateway.protocol.burst import Plan, Process, Size


class Ranks:
    """So many of one process each that nobody starts: the test speaks for them. ``heard``: what their group passes on."""

    def __init__(self, folder: Path, count: int, elsewhere: bool = False) -> None:
        self.heard: list[dict[str, Any]] = []
        self._selector = selectors.DefaultSelector()
        processes = [vars(Process(argv=[], number=number, after="never")) for number in range(count)]
        plan, journal = Plan(size={}, env={}, cwd="/"), Journal(folder / "journal", 1 << 20)
        size = Size(number=1, workers=1, processes=processes)
        self.group = Group(folder, 1, size, plan, self._selector, journal, self._hear, 0o022, elsewhere)
        self._lines = [self._come(folder, number) for number in range(count)]

    def say(self, *words: tuple[int, dict[str, Any]]) -> None:
        """All of them before the agent looks."""
        for rank, word in words:
            self._lines[rank].sendall(json.dumps(word).encode() + b"\n")
        while ready := self._selector.select(0):
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
