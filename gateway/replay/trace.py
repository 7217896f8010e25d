"""Recorded work: who ran which cell when, on how many GPUs. Read from a CSV file; it must never guess what a line means.

The recorded moments become gaps: a cell is sent so long after the one before it has ended, as its user reads the result first. So
where a policy makes a cell wait, its session goes on later and as long as before.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..protocol.errors import ElasticError

NEEDED = ("session", "start", "duration", "gpus")
COLUMNS = (*NEEDED, "memory")  # and perhaps "user"; others are passed over
BAD_TRACE = "bad_trace"


@dataclass(frozen=True, slots=True)
class Cell:
    """Times in seconds."""

    gap: float  # after the cell before it has ended; the first: after the session's start
    duration: float
    gpus: int  # 0: it needs none
    memory: int = 0  # bytes on the GPU when it ends


@dataclass(frozen=True, slots=True)
class Session:
    """One kernel's life."""

    name: str
    user: str
    start: float
    gpus: int  # of its lease
    cells: tuple[Cell, ...]
    tail: float = 0.0  # how long it stays open after its last cell


@dataclass(frozen=True, slots=True)
class Row:
    """One cell as it was recorded. Times in seconds from any moment, ``memory`` in bytes."""

    session: str
    user: str
    start: float
    duration: float
    gpus: int
    memory: int = 0


def read_csv(path: Path) -> list[Session]:
    """The file's sessions by their start: each lasts from its first cell to the end of its last. Raises ``ElasticError`` with the line.

    ``start`` is in seconds from any moment, or ISO 8601 (UTC where it names no zone); ``duration`` in seconds, ``gpus`` a number (0: the
    cell needs none), ``memory`` in bytes. Without a column ``user`` each session is a user. Without a heading: those five, in that order.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            try:
                rows = list(_rows(lines))
            except UnicodeDecodeError:
                raise ElasticError(f"{path} is no text in UTF-8; replay reads CSV: {','.join(COLUMNS)}.", reason=BAD_TRACE) from None
            except (ValueError, csv.Error) as exc:
                raise ElasticError(f"{path}, line {lines.line_num}: {exc}.", reason=BAD_TRACE) from None
    except OSError as exc:
        raise ElasticError(f"{path} can't be read: {exc.strerror}.", reason=BAD_TRACE) from None
    if not rows:
        raise ElasticError(f"{path} has no cell in it; replay reads CSV, a line for each cell: {','.join(COLUMNS)}.", reason=BAD_TRACE)
    return sessions(rows)


def sessions(rows: list[Row]) -> list[Session]:
    """By their start. Raises ``ElasticError`` where there is no row."""
    if not rows:
        raise ElasticError("No cell has been recorded in that time.", reason=BAD_TRACE)
    rows = sorted(rows, key=lambda row: row.start)
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.user, row.session), []).append(row)
    return [_session(each, rows[0].start) for each in found.values()]


def _rows(lines: Iterator[list[str]]) -> Iterator[Row]:
    columns: dict[str, int] | None = None
    for line in lines:
        fields = [field.strip() for field in line]
        if not any(fields):
            continue
        if columns is None:
            names = [name.lower() for name in fields]
            headed = "session" in names or "start" in names
            columns = {name: place for place, name in enumerate(names if headed else COLUMNS)}
            if missing := [name for name in NEEDED if name not in columns]:
                raise ValueError(f"the heading has no {' and no '.join(missing)}; it should be {','.join(COLUMNS)}")
            if headed:
                continue
        yield _row({name: fields[place] for name, place in columns.items() if place < len(fields)})


def _row(fields: dict[str, str]) -> Row:
    session = fields.get("session", "")
    if not session:
        raise ValueError("session is empty; it names the kernel's life that the cell is part of")
    start, duration = _moment(fields.get("start", "")), _number("duration", fields.get("duration", ""))
    gpus = _number("gpus", fields.get("gpus", ""))
    if not gpus.is_integer():
        raise ValueError(f"gpus is {gpus:g}; it must be a whole number")
    memory = _number("memory", fields.get("memory") or "0")
    return Row(session, fields.get("user") or session, start, duration, int(gpus), int(memory))


def _number(name: str, text: str) -> float:
    value = _float(text)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {text!r}; it must be a number, 0 or more")
    return value


def _moment(text: str) -> float:
    value = _float(text)
    if math.isnan(value):
        try:
            moment = datetime.fromisoformat(text)
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            pass
    if not math.isfinite(value):
        raise ValueError(f"start is {text!r}; it must be a number of seconds, or ISO 8601")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _session(rows: list[Row], begin: float) -> Session:
    cells, end = [], rows[0].start
    for row in rows:
        cells.append(Cell(max(0.0, row.start - end), row.duration, row.gpus, row.memory))
        end = max(end, row.start) + row.duration
    return Session(rows[0].session, rows[0].user, rows[0].start - begin, max(row.gpus for row in rows), tuple(cells))
