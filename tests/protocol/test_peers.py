"""What ranks fail of because others are gone."""

from __future__ import annotations

import pytest

from gateway.protocol.peers import follows, why_gone

GLOO = {"name": "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:2345"}


@pytest.mark.parametrize(
    ("name", "is_so"), [(GLOO["name"], True), ("BrokenPipeError: [Errno 32] Broken pipe", True), ("ValueError: no", False)]
)
def test_a_failure_that_says_only_that_another_is_gone_follows(name: str, is_so: bool) -> None:
    assert follows({"name": name}) == is_so


def test_whoever_misses_those_that_were_through_is_told_so() -> None:
    assert why_gone(GLOO, ["Rank 0"]).startswith("Rank 0 was through with the cell by then: ")
    assert why_gone(GLOO, ["Rank 0", "Rank 2"]).startswith("Rank 0, Rank 2 were through ")
    assert why_gone(GLOO, [f"Rank {number}" for number in range(9)]).startswith("Rank 0, Rank 1, Rank 2 and others were through ")


def test_a_failure_of_its_own_or_nobody_missed_needs_no_word() -> None:
    assert not why_gone({"name": "ValueError: no"}, ["Rank 0"]) and not why_gone(GLOO, [])
