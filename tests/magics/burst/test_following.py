"""A burst's events, read as they come: whole ones alone, also after a stop that leaves some out."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.magics.burst import following
from gateway.magics.burst.following import NEWEST, Following

BURST = {"id": "1", "name": "flood", "engine": "none", "created": 0.0, "ended": 9.0}


class Seen:
    """Stands for the notebook's cell."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.said: list[str] = []

    def event(self, event: dict[str, Any]) -> None:
        self.texts.append(event["text"])

    def status(self, text: str, now: bool = False) -> None:
        self.said.append(text)

    def note(self, text: str) -> None:
        self.said.append(text)

    def skip(self) -> None: ...
    def flush(self) -> None: ...
    def end(self) -> None: ...


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the gateway has of a burst: ``text`` grows by ``steps``, one for each question, and is handed out as it does."""
    kept = SimpleNamespace(text="", steps=[])

    def call(op: str, since: int, newest: int = 1 << 50, **_: Any) -> dict[str, Any]:
        kept.text += kept.steps.pop(0) if kept.steps else ""
        first = max(since, len(kept.text) - newest)
        return {"ok": True, "burst": BURST, "text": kept.text[first:], "next": len(kept.text), "left_out": first - since}

    monkeypatch.setattr(following, "call", call)
    monkeypatch.setattr(following, "depot", lambda shown: None)
    return kept


def event(text: str) -> str:
    return json.dumps({"t": "out", "rank": 0, "name": "stdout", "text": text}) + "\n"


END = json.dumps({"t": "end", "at": 9.0, "outcome": "cancelled", "message": ""}) + "\n"


@pytest.mark.parametrize("size", [10, NEWEST, 3 * NEWEST])
def test_after_a_stop_an_event_that_is_cut_is_left_out_as_a_whole_however_large_it_is(journal, size):
    flood = event("x" * size)
    journal.steps = [event("first") + flood, flood[: len(flood) // 2], flood[len(flood) // 2 : -9], flood[-9:] + event("last") + END]
    seen = Seen()
    reading = Following(BURST, seen)
    reading.hurry()
    ended = reading.follow()
    assert ended is not None and ended.outcome == "cancelled"
    assert seen.texts[-1] == "last" and set(seen.texts) <= {"first", "x" * size, "last"}


def test_the_line_at_the_end_says_on_which_rank_a_cell_has_failed(journal):
    failed = {"t": "failed", "name": "ValueError", "text": "", "raised": True}
    end = json.dumps({"t": "end", "at": 9.0, "outcome": "error", "message": ""}) + "\n"
    for more, where in (({"rank": 3}, "rank 3"), ({"rank": 4, "as": "simulator 0"}, "simulator 0")):
        journal.text, journal.steps = "", [json.dumps({**failed, **more}) + "\n", end]
        seen = Seen()
        assert Following(BURST, seen).follow() is not None
        assert seen.said[-1] == f"flood · failed on {where} after 9.0 s"
