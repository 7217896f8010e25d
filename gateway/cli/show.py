"""How subcommands print: tables for people, the gateway's own JSON for programs. It must never reformat what ``--json`` prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from ..protocol.durations import read_duration
from ..protocol.errors import ElasticError


def as_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def rows(found: Sequence[dict[str, Any]], columns: dict[str, Callable[[dict[str, Any]], Any]], json_wanted: bool, none: str) -> None:
    """What a gateway lists: as it came for programs; for people a table with a column for each title that anything stands under."""
    if json_wanted:
        as_json(found)
        return
    cells = {title: [str(read(entry)) for entry in found] for title, read in columns.items()}
    filled = {title: column for title, column in cells.items() if any(column)}
    table(list(filled), zip(*filled.values(), strict=True), none)


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]], none: str) -> None:
    """A table, or the sentence ``none`` where there are no rows."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        print(none)
        return
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for row in [titles, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def short(kernel_id: str) -> str:
    """How a kernel's id begins, as tables show it and every subcommand takes it."""
    return kernel_id[:8]


def setting(value: Any) -> str:
    """As it is typed."""
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, str):
        return value
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else f"{value:g}"


def span(seconds: float) -> str:
    """A duration in two figures at most: ``45 s``, ``12 min``, ``3.5 h``."""
    for limit, size, unit in ((90, 1, "s"), (5400, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            number = seconds / size
            return f"{number:.1f} {unit}" if unit == "h" and number < 10 else f"{number:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def ago(moment: str | None, now: datetime | None = None) -> str:
    """How long ago an ISO 8601 moment was; an empty string for None."""
    return "" if moment is None else span(max(0.0, -_from_now(moment, now)))


def ahead(moment: str | None, now: datetime | None = None) -> str:
    """How far ahead a moment lies; ``now`` where it has passed."""
    if moment is None:
        return ""
    left = _from_now(moment, now)
    return span(left) if left > 0 else "now"


def count(number: int, thing: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def size(number: int) -> str:
    """Bytes as people count them: powers of 1000."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(text: str) -> float:
    """Seconds from ``90``, ``90s``, ``30m``, ``1h30m``. Raises ``ElasticError``."""
    seconds = read_duration(text)
    if seconds is None:
        raise ElasticError(f"{text!r} isn't a duration: write seconds, or 30m, or 1h30m.", reason="bad_usage")
    return seconds


def _from_now(moment: str, now: datetime | None) -> float:
    return (datetime.fromisoformat(moment) - (now or datetime.now(UTC))).total_seconds()
