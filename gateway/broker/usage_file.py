"""The SQLite file in which GPU time is kept: a row for each span of time in which a kernel held, executed, or would have reserved GPUs.

Everything here is called on one thread that is not the event loop's. It must never decide which spans there are.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..leases.meter import Span

_TABLES = """
CREATE TABLE IF NOT EXISTS spans (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, kernel_id TEXT NOT NULL, user TEXT NOT NULL, kernelspec TEXT NOT NULL, flavor TEXT NOT NULL,
    node TEXT NOT NULL, gpus INTEGER NOT NULL, uuids TEXT NOT NULL, begin_at REAL NOT NULL, end_at REAL
);
CREATE INDEX IF NOT EXISTS spans_by_end ON spans (end_at);
CREATE TABLE IF NOT EXISTS removed (
    kind TEXT NOT NULL, user TEXT NOT NULL, flavor TEXT NOT NULL, kernelspec TEXT NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (kind, user, flavor, kernelspec)
);
CREATE TABLE IF NOT EXISTS seen (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL NOT NULL);
"""
_FIELDS = "id, kind, kernel_id, user, kernelspec, flavor, node, gpus, uuids, begin_at, end_at"
BY = {"user": "user", "kernel": "kernel_id", "kernelspec": "kernelspec", "flavor": "flavor", "day": "date(begin_at, 'unixepoch')"}
CELLS = "cell"
_ENDED = "SELECT kind, user, flavor, kernelspec, SUM(gpus * (end_at - begin_at)) AS seconds FROM spans WHERE end_at IS NOT NULL"

Key = tuple[str, str, str, str]  # kind, user, flavor, kernelspec


@dataclass(frozen=True, slots=True)
class Row:
    """One span, whose times are seconds since 1970 here."""

    id: int
    span: Span

    @property
    def key(self) -> Key:
        """What it is added up under."""
        return self.span.kind, self.span.user, self.span.flavor, self.span.kernelspec

    def seconds(self, until: float) -> float:
        """GPU-seconds; of what goes on, until then."""
        end = until if self.span.end is None else self.span.end
        return self.span.gpus * max(0.0, end - self.span.begin)

    def values(self) -> tuple[Any, ...]:
        span = self.span
        named = span.kind, span.kernel_id, span.user, span.kernelspec, span.flavor, span.node, span.gpus
        return self.id, *named, " ".join(span.uuids), span.begin, span.end

    @classmethod
    def of(cls, values: Sequence[Any]) -> Row:
        number, *named, uuids, begin, end = values
        return cls(number, Span(*named, tuple(uuids.split()), begin, end))


@dataclass(frozen=True)
class Found:
    """What the file says as it is opened."""

    open: list[Row]
    ends: dict[tuple[str, str], float]  # of the last span of each kernel and kind
    sums: dict[Key, float]  # GPU-seconds of ended spans, those that were removed too
    last_id: int
    seen: float  # when it was written last, 0: never


class UsageFile:
    """``path`` may be ``:memory:``. Raises ``sqlite3.Error``, and ``OSError`` where its folder can't be written."""

    def __init__(self, path: str) -> None:
        self._path = path
        if path != ":memory:":
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._identity = self._look()
        self._db = sqlite3.connect(path)
        self._db.execute("PRAGMA journal_mode=WAL")  # a kill loses nothing that was written; readers wait for nobody
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_TABLES)

    def gone(self) -> bool:
        """Somebody has removed it, or put another in its place: what is written now, nobody will read."""
        return self._look() != self._identity

    def _look(self) -> tuple[int, int] | None:
        try:
            seen = os.stat(self._path)
        except OSError:
            return None
        return seen.st_dev, seen.st_ino

    def found(self) -> Found:
        db = self._db
        rows = [Row.of(row) for row in db.execute(f"SELECT {_FIELDS} FROM spans WHERE end_at IS NULL")]
        ends = db.execute("SELECT kernel_id, kind, MAX(end_at) FROM spans WHERE end_at IS NOT NULL GROUP BY 1, 2")
        every = f"{_ENDED} GROUP BY 1, 2, 3, 4 UNION ALL SELECT * FROM removed"
        sums = db.execute(f"SELECT kind, user, flavor, kernelspec, SUM(seconds) FROM ({every}) GROUP BY 1, 2, 3, 4")
        last_id = db.execute("SELECT COALESCE(MAX(id), 0) FROM spans").fetchone()[0]
        seen = db.execute("SELECT COALESCE(MAX(at), 0) FROM seen").fetchone()[0]
        return Found(rows, {(k, kind): at for k, kind, at in ends}, {tuple(row[:4]): row[4] for row in sums}, last_id, seen)  # type: ignore[misc]

    def write(self, rows: Iterable[Row], now: float) -> None:
        """New rows, and those that have ended; all of them or none."""
        marks = ", ".join("?" * 11)
        with self._db:
            self._db.executemany(f"INSERT OR REPLACE INTO spans ({_FIELDS}) VALUES ({marks})", [row.values() for row in rows])
            self._db.execute("INSERT OR REPLACE INTO seen (id, at) VALUES (1, ?)", (now,))

    def sums(self, by: str, since: float, until: float, user: str | None) -> list[tuple[Any, ...]]:
        """``(key, flavor, kind, spans, GPU-seconds)`` within a time; what goes on counts until ``until``. ``user``: of that one alone."""
        query = f"""SELECT {BY[by]}, flavor, kind, COUNT(*), SUM(gpus * (MIN(COALESCE(end_at, :until), :until) - MAX(begin_at, :since)))
            FROM spans WHERE begin_at < :until AND COALESCE(end_at, :until) > :since AND (:user IS NULL OR user = :user)
            GROUP BY 1, 2, 3 ORDER BY 1"""
        return self._db.execute(query, {"since": since, "until": until, "user": user}).fetchall()

    def cells(self, since: float, until: float, user: str | None, most: int) -> list[Row]:
        """What has run on GPUs, newest first."""
        query = f"""SELECT {_FIELDS} FROM spans WHERE kind = 'executed' AND begin_at < :until AND COALESCE(end_at, :until) > :since
            AND (:user IS NULL OR user = :user) ORDER BY begin_at DESC LIMIT :most"""
        values: dict[str, Any] = {"since": since, "until": until, "user": user, "most": most}
        return [Row.of(row) for row in self._db.execute(query, values)]

    def remove(self, before: float) -> None:
        """Spans that ended before then; what they add up to stays."""
        with self._db:
            self._db.execute(
                f"""INSERT INTO removed {_ENDED} AND end_at < ? GROUP BY 1, 2, 3, 4
                ON CONFLICT DO UPDATE SET seconds = seconds + excluded.seconds""",
                (before,),
            )
            self._db.execute("DELETE FROM spans WHERE end_at < ?", (before,))

    def close(self) -> None:
        self._db.close()


def together(sums: Sequence[tuple[Any, ...]], prices: dict[str, float]) -> list[dict[str, Any]]:
    """One entry for each key: ``cells``, GPU-seconds ``held``, ``executed`` and ``saved``, and ``cost`` where prices are known."""
    found: dict[Any, dict[str, Any]] = {}
    for key, flavor, kind, count, seconds in sums:
        entry = found.setdefault(key, {"key": key, "cells": 0, "held": 0.0, "executed": 0.0, "reserved": 0.0, "cost": 0.0})
        entry[kind] += seconds
        if kind == "executed":
            entry["cells"] += count
        elif kind == "held":
            entry["cost"] += seconds / 3600 * prices.get(flavor, 0.0)
    for entry in found.values():
        entry["saved"] = max(0.0, entry.pop("reserved") - entry["held"])
        if not prices:
            del entry["cost"]
    return list(found.values())
