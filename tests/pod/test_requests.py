"""What clients send is read once, and under each message id once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.pod.gate import Gate, Request
from gateway.pod.requests import Repeats, read, read_cell
from gateway.protocol.errors import WireError


def message(msg_id: str, code: Any = "1", session: str = "s", **content: Any) -> list[bytes]:
    header = {"msg_id": msg_id, "msg_type": "execute_request", "session": session}
    return [json.dumps(part).encode() for part in (header, {}, {}, {"code": code, **content})]


def request(msg_id: str, source: bytes = b"A", **kwargs: Any) -> Request:
    return read("shell", [source], message(msg_id, **kwargs), own="own_")


@pytest.fixture
def gate() -> Gate:
    gate = Gate(0, lambda request: (True, ""), lambda request: None)
    gate.kernel_ready()
    return gate


@pytest.mark.parametrize("header", [{}, {"msg_id": "a"}, {"msg_id": 1, "msg_type": "x"}, {"msg_id": "own_1", "msg_type": "x"}])
def test_a_header_that_names_nothing_or_one_of_our_own_messages_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        read("shell", [], [json.dumps(header).encode(), b"{}", b"{}", b"{}"], own="own_")


def test_a_cell_without_code_says_what_is_wrong() -> None:
    assert "code" in read_cell(request("a", code=7))
    assert "user_expressions" in read_cell(request("a", user_expressions=[1]))
    cell = request("a", code="x = 1", user_expressions={"a": "x", "b": 7})
    assert not read_cell(cell) and cell.code == "x = 1" and cell.expressions == ("x",)


@pytest.mark.parametrize("at", [2, 3])
@pytest.mark.parametrize("part", [b"[]", b"{no json"])
def test_a_cell_whose_content_cannot_be_read_is_answered(at: int, part: bytes) -> None:
    parts = message("a")
    parts[at] = part
    assert "must be objects" in read_cell(read("shell", [b"A"], parts, own="own_"))


def test_a_repeat_of_what_is_under_way_needs_no_answer_of_its_own(gate: Gate) -> None:
    repeats = Repeats(gate)
    assert repeats.refuse(request("a")) is None
    gate.request(request("a"))
    assert repeats.refuse(request("a")) == ""


def test_a_repeat_of_what_was_answered_is_refused_also_by_the_next_kernel_process(gate: Gate) -> None:
    repeats = Repeats(gate)
    repeats.refuse(request("a"))
    gate.request(request("a"))
    gate.gone("died", asked=False)
    assert "answered before" in (repeats.refuse(request("a")) or "")


def test_an_id_that_is_taken_is_refused_to_whoever_else_comes_with_it(gate: Gate) -> None:
    repeats = Repeats(gate)
    repeats.refuse(request("a"))
    gate.request(request("a"))
    assert repeats.refuse(request("a", code="2")) and repeats.refuse(request("a", b"B"))


def test_an_id_that_waits_at_the_gate_is_taken(gate: Gate) -> None:
    gate.count, repeats = 1, Repeats(gate)
    repeats.refuse(request("a"))
    gate.request(request("a"))
    assert gate.held and repeats.refuse(request("a", code="2"))


def test_other_code_under_an_id_that_was_answered_runs_as_it_does_without_us(gate: Gate) -> None:
    repeats = Repeats(gate)
    repeats.refuse(request("a"))
    assert repeats.refuse(request("a", code="2")) is None


def test_memory_of_what_was_sent_is_bounded_and_the_oldest_goes_first(gate: Gate) -> None:
    repeats = Repeats(gate, most=3)
    for msg_id in "abcd":
        assert repeats.refuse(request(msg_id)) is None
    assert repeats.refuse(request("b")) and repeats.refuse(request("a")) is None
