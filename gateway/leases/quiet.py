"""Quiet hours: when a GPU stays with an idle kernel although its idle timeout has passed, as long as nobody waits for it.

Written ``22:00-06:00``, with days before it (``mon-fri 22:00-06:00``, ``sat,sun 00:00-24:00``) and the name of a time zone behind
it (``22:00-06:00 Europe/Vienna``), several separated by semicolons. Pure; it must never ask what time it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = r"\d\d?:\d\d"
_WRITTEN = re.compile(rf"(?:(?P<days>[a-z,-]+)\s+)?(?P<begin>{_TIME})\s*-\s*(?P<end>{_TIME})(?:\s+(?P<zone>[A-Za-z][\w/+-]*))?", re.ASCII)


@dataclass(frozen=True)
class Hours:
    """Minutes of the day. Where ``end`` isn't after ``begin`` they go on into the next day, and belong to the day on which they begin.
    ``zone`` None: the gateway's own time."""

    days: frozenset[int]
    begin: int
    end: int
    zone: ZoneInfo | None

    def hold(self, moment: datetime) -> bool:
        local = moment.astimezone(self.zone)
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        yesterday = (local - timedelta(days=1)).weekday()
        return (day in self.days and minute >= self.begin) or (yesterday in self.days and minute < self.end)


@lru_cache(maxsize=256)
def read_hours(text: str) -> tuple[Hours, ...]:
    """Raises ``ValueError`` with what is wrong. An empty text: never."""
    return tuple(_read(part.strip()) for part in text.split(";") if part.strip())


def quiet(text: str | None, moment: datetime) -> bool:
    """Whether such hours hold at this moment (which knows its time zone)."""
    return any(hours.hold(moment) for hours in read_hours(text or ""))


def _read(part: str) -> Hours:
    match = _WRITTEN.fullmatch(part)
    if match is None:
        raise ValueError(f"{part[:40]!r} is no time of day: write 22:00-06:00, perhaps mon-fri before it and a time zone behind it")
    begin, end = (_minute(match[name]) for name in ("begin", "end"))
    if begin == end or begin == 1440:
        raise ValueError(f"{part[:40]!r} begins where it ends: for a whole day write 00:00-24:00")
    return Hours(_days(match["days"]), begin, end, _zone(match["zone"]))


def _minute(text: str) -> int:
    hour, minute = map(int, text.split(":"))
    if minute > 59 or hour * 60 + minute > 1440:
        raise ValueError(f"{text!r} is no time of day: there are 00:00 to 24:00")
    return hour * 60 + minute


def _days(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            raise ValueError(f"{part[:40]!r} is no day: write {', '.join(DAYS)}, or mon-fri")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found.update(day % 7 for day in range(begin, end + 1 if end >= begin else end + 8))
    return frozenset(found)


def _zone(name: str | None) -> ZoneInfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such zone, or none known on this machine
        raise ValueError(f"{name[:40]!r} is no time zone that this machine knows: write one as Europe/Vienna, or UTC") from None
