"""Quiet hours as they are written, and when they hold."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.leases.quiet import quiet, read_hours


def at(hour: int, minute: int = 0, day: int = 30, month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment", "holds"),
    [
        ("", at(3), False),
        ("09:00-17:30 UTC", at(9), True),
        ("09:00-17:30 UTC", at(17, 30), False),
        ("22:00-06:00 UTC", at(23), True),
        ("22:00-06:00 UTC", at(5, 59), True),
        ("22:00-06:00 UTC", at(6), False),
        ("mon-fri 22:00-06:00 UTC", at(5, day=1, month=12), True),  # Tuesday morning, still Monday's
        ("fri 22:00-06:00 UTC", at(5, day=5, month=12), True),  # Saturday morning
        ("fri 22:00-06:00 UTC", at(23, day=5, month=12), False),
        ("sat,sun 00:00-24:00 UTC", at(12), False),
        ("sat,sun 00:00-24:00 UTC", at(23, 59, day=6, month=12), True),
        ("sat-mon 10:00-11:00 UTC", at(10), True),
        ("22:00-06:00 Europe/Vienna", at(21), True),  # 22:00 in Vienna
        ("22:00-06:00 Europe/Vienna", at(5), False),
        ("08:00-09:00 UTC; 12:00-13:00 UTC", at(12, 30), True),
    ],
)
def test_hours_hold_when_they_say(text: str, moment: datetime, holds: bool):
    assert quiet(text, moment) is holds


@pytest.mark.parametrize(
    "text", ["late", "22-06", "25:00-06:00", "22:60-23:00", "08:00-08:00", "someday 08:00-09:00", "08:00-09:00 Mars/Base"]
)
def test_what_is_no_time_of_day_is_refused_with_what_would_be(text: str):
    with pytest.raises(ValueError, match=r"write|there are"):
        read_hours(text)
