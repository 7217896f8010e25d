"""Durations, sizes and moments as people read and write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.cli import show
from gateway.protocol.errors import ElasticError


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("1.5h", 5400), ("1d", 86400)]
)
def test_a_duration_is_read_as_it_is_written(text, seconds):
    assert show.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5", "1 h", "1x", "soon"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ElasticError, match="isn't a duration"):
        show.duration(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (89, "89 s"), (120, "2 min"), (5400, "1.5 h"), (36000, "10 h"), (3e5, "3 d")])
def test_a_span_has_two_figures(seconds, text):
    assert show.span(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (16 << 30, "17 GB"), (2 * 10**12, "2.0 TB")])
def test_bytes_are_counted_in_thousands(number, text):
    assert show.size(number) == text


def test_moments_are_told_from_now():
    now = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
    assert show.ago("2030-01-01T11:58:00+00:00", now) == "2 min"
    assert show.ahead("2030-01-01T12:00:30Z", now) == "30 s"
    assert show.ahead("2030-01-01T11:00:00Z", now) == "now"
    assert show.ago(None) == show.ahead(None) == ""
