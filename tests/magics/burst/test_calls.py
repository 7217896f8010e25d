"""A burst that is made and has to begin, over a gateway that goes away and comes back."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.magics.burst import calls
from gateway.protocol.errors import BadRequest, BrokerUnavailable, ElasticError


class Gateway:
    """``steps``: what becomes of one question after the other: answered, "away", or "deaf": heard and not answered."""

    def __init__(self, *steps: str) -> None:
        self.steps, self.state, self.begun = list(steps), "new", 0

    def __call__(self, op: str, burst: str) -> dict[str, Any]:
        step = self.steps.pop(0) if self.steps else ""
        if step == "away":
            raise BrokerUnavailable("nobody is there")
        if op == "start":
            if self.state != "new":
                raise BadRequest("it was started already")
            self.state, self.begun = "running", self.begun + 1
        if step == "deaf":
            raise BrokerUnavailable("it was killed")
        return {"burst": {"id": burst, "state": self.state}}


@pytest.mark.parametrize("steps", [[], ["deaf"], ["away"], ["away", "away", "", "away"], ["deaf", "away"], ["away", "", "deaf"]])
def test_it_begins_once_whatever_a_gateway_that_was_killed_had_heard(monkeypatch: pytest.MonkeyPatch, steps: list[str]) -> None:
    gateway, said = Gateway(*steps), list[str]()
    monkeypatch.setattr(calls, "call", gateway)
    monkeypatch.setattr(calls, "RETRY_SECONDS", 0.0)
    assert calls.start("b", said.append) == {"id": "b", "state": "running"}
    assert (gateway.begun, len(said)) == (1, bool(steps))


def test_what_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(op: str, burst: str) -> dict[str, Any]:
        raise BadRequest("run the cell again")

    monkeypatch.setattr(calls, "call", call)
    with pytest.raises(ElasticError, match="run the cell again"):
        calls.start("b", lambda text: None)
