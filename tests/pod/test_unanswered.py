"""A request that the kernel never answers is closed, and no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.pod.gate import Effect, Fail, Gate, Request
from gateway.pod.idle import SILENCE, IdleWatch
from gateway.pod.messages import Messages
from gateway.pod.unanswered import ENAME, Unanswered
from gateway.protocol.model import Phase


class Kernel:
    """What has gone to it and what it has said."""

    def __init__(self) -> None:
        self.gate = Gate(1, lambda request: (True, ""), lambda request: None)
        self.gate.kernel_ready()
        self.gate.moved(Phase.HOLDING)
        self.idle: IdleWatch[str] = IdleWatch(0.0)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.closed: list[str] = []
        self.watch = Unanswered(self.gate, self.idle, Messages(), self.ask, self.close, lambda: None)

    def takes(self, msg_id: str, lane: str = "", msg_type: str = "execute_request") -> Request:
        request = Request("source", [], msg_id, msg_type, lane)
        self.gate.control(request) if lane == "control" else self.gate.request(request)
        return request

    def replies(self, msg_id: str) -> None:
        request = self.gate.replied(msg_id)
        assert request is not None
        self.watch.replied(request)
        self.idle.closed(msg_id)

    def begins(self, msg_id: str) -> None:
        self.gate.said(msg_id, "busy")

    def is_through(self, msg_id: str) -> None:
        self.gate.said(msg_id, "idle")
        self.idle.idle(msg_id, running=True)

    def answers_the_question(self) -> None:
        msg_id = self.asked[-1][1]["msg_id"]
        self.watch.published(msg_id)
        self.watch.probed(msg_id)

    def ask(self, channel: str, parts: Any) -> None:
        self.asked.append((channel, json.loads(parts[0])))

    def close(self, effects: list[Effect]) -> None:
        (fail,) = effects
        assert isinstance(fail, Fail) and fail.ename == ENAME
        self.closed.append(fail.request.msg_id)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


def test_a_later_reply_on_the_same_lane_closes_what_is_through_and_unanswered(kernel: Kernel) -> None:
    kernel.takes("a")
    kernel.takes("b")
    kernel.is_through("a")
    kernel.replies("b")
    assert kernel.closed == ["a"] and not kernel.gate.executing and not kernel.gate.in_flight


def test_a_request_that_is_not_through_is_never_closed(kernel: Kernel) -> None:
    kernel.takes("a")
    kernel.takes("b")
    kernel.begins("a")
    kernel.replies("b")
    for now in (0.0, 1e9):
        kernel.watch.look(now)
    assert not kernel.closed and not kernel.asked and kernel.gate.executing


def test_neither_an_earlier_reply_nor_one_of_another_lane_nor_one_that_may_overtake_proves_anything(kernel: Kernel) -> None:
    for msg_id, lane, msg_type in (
        ("first", "", "execute_request"),
        ("a", "", "execute_request"),
        ("other", "subshell", "execute_request"),
        ("help", "", "complete_request"),
    ):
        kernel.takes(msg_id, lane, msg_type)
    kernel.is_through("a")
    for msg_id in ("first", "other", "help"):
        kernel.replies(msg_id)
    assert not kernel.closed


@pytest.mark.parametrize(("lane", "channel", "subshell"), [("", "shell", None), ("s1", "shell", "s1"), ("control", "control", None)])
def test_where_nothing_comes_later_the_kernel_is_asked_on_the_same_lane(
    kernel: Kernel, lane: str, channel: str, subshell: str | None
) -> None:
    kernel.takes("a", lane)
    kernel.is_through("a")
    kernel.watch.look(10.0)
    kernel.watch.look(10.0 + SILENCE / 2)
    assert not kernel.asked, "its reply may just be on its way"
    kernel.watch.look(10.0 + SILENCE)
    kernel.watch.look(11.0 + SILENCE)
    assert [(at, header.get("subshell_id")) for at, header in kernel.asked] == [(channel, subshell)], "asked once"
    kernel.watch.probed("something else")
    assert not kernel.closed
    kernel.watch.probed(kernel.asked[0][1]["msg_id"])
    assert kernel.closed == ["a"] and not kernel.gate.in_flight


def test_a_reply_that_comes_before_the_probes_is_the_only_one(kernel: Kernel) -> None:
    kernel.takes("a")
    kernel.is_through("a")
    kernel.watch.look(0.0)
    kernel.watch.look(SILENCE)
    kernel.replies("a")
    kernel.watch.probed(kernel.asked[0][1]["msg_id"])
    assert not kernel.closed


def test_the_next_kernel_process_is_asked_anew(kernel: Kernel) -> None:
    kernel.takes("a")
    kernel.is_through("a")
    kernel.watch.look(0.0)
    kernel.watch.look(SILENCE)
    kernel.watch.forget()
    kernel.watch.probed(kernel.asked[0][1]["msg_id"])
    assert not kernel.closed


def test_what_the_kernel_drops_without_a_word_is_closed_once_it_has_answered_and_published_something_later(kernel: Kernel) -> None:
    kernel.takes("a")
    kernel.watch.look(0.0)
    kernel.watch.look(SILENCE)
    msg_id = kernel.asked[0][1]["msg_id"]
    kernel.watch.probed(msg_id)
    assert not kernel.closed, "what it has published of the cell may be on its way"
    kernel.watch.published(msg_id)
    assert kernel.closed == ["a"] and not kernel.gate.in_flight


def test_a_cell_that_begins_late_is_never_closed(kernel: Kernel) -> None:
    kernel.takes("a")
    kernel.watch.look(0.0)
    kernel.watch.look(SILENCE)
    kernel.begins("a")
    kernel.answers_the_question()
    for now in (2 * SILENCE, 9 * SILENCE):
        kernel.watch.look(now)
    assert not kernel.closed and len(kernel.asked) == 1


def test_a_cell_that_waits_behind_one_that_runs_is_not_asked_for(kernel: Kernel) -> None:
    kernel.takes("a")
    kernel.takes("b")
    kernel.begins("a")
    for now in (0.0, 1e9):
        kernel.watch.look(now)
    assert not kernel.asked
