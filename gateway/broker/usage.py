"""GPU time as it is kept: the lease book's spans written down by a thread, added up for Prometheus, found again after a kill.

A span that was open when the gateway died goes on if its kernel still holds the same GPUs, from where it began; else it ended when the
kernel's supervisor says so, or when the file was last written. It must never keep the event loop waiting for a disk, nor fail a cell.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ..leases.events import KernelSeen
from ..leases.meter import EXECUTED, Meter, Span
from ..protocol.errors import BadRequest, ElasticError
from ..settings import Usage as Settings
from .usage_file import BY, CELLS, Key, Row, UsageFile, together

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)

WRITE_SECONDS = 0.1  # between two writings, where there is something to write: what a kill may cost
FORGET_SECONDS, DAY = 3600.0, 86400.0  # between two removals of what is too old
SEEN_SECONDS = 10.0  # between two where there is nothing: so much of a kernel's time may be missing that ends while no gateway runs
MOST_CELLS = 10_000  # of one answer

Sums = dict[Key, float]  # GPU-seconds
T = TypeVar("T")


def usage_of(broker: Broker) -> Usage | None:
    return next((each for each in broker.beside if isinstance(each, Usage)), None)


def keep_usage(broker: Broker, settings: Settings) -> Usage:
    """Give a broker, before its start, something that keeps its GPU time."""
    places = broker.backend.places
    usage = Usage(broker, settings.database or (str(places.root / "usage.db") if places is not None else ":memory:"), settings)
    broker.beside.append(usage)
    return usage


class Usage:
    """``clock`` and ``wall`` as the broker has them."""

    def __init__(self, broker: Broker, path: str, settings: Settings) -> None:
        self._broker, self._path, self._settings = broker, path, settings
        self._book = broker.book
        self._meter = self._book.meter = self._book.meter or Meter(self._book.devices)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elastic usage")
        self._file: UsageFile | None = None
        self._rows: dict[tuple[str, str], Row] = {}  # open ones by kernel and kind
        self._left: dict[tuple[str, str], Row] = {}  # open ones of the gateway before us that nobody has gone on with
        self._ends: dict[tuple[str, str], float] = {}
        self._closed: Sums = {}
        self._last_id, self._seen, self._written, self._forgot = 0, 0.0, 0.0, 0.0
        self._pending: list[Row] = []  # to be written
        self._round: asyncio.Task[None] | None = None

    # beside a broker

    def held(self) -> list[KernelSeen]:
        return []

    async def start(self) -> None:
        try:
            found = await self._do(self._open)
        except (sqlite3.Error, OSError) as exc:
            log.error("GPU time can't be kept in %s (%s) and is forgotten as the gateway ends: set Usage.database.", self._path, exc)
            self._path = ":memory:"
            found = await self._do(self._open)
        self._left = {(row.span.kernel_id, row.span.kind): row for row in found.open}
        self._ends, self._closed, self._last_id, self._seen = found.ends, found.sums, found.last_id, found.seen
        ended = self._news()
        ended += [self._ended(row, self._left_end(row)) for row in self._left.values()]
        self._left = {}
        await self._write(ended)
        self._round = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """What goes on stays open: kernels do."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)
            await self._write(self._news())
        if self._file is not None:
            await self._do(self._file.close)
            self._file = None
        self._thread.shutdown(wait=False)

    # what people ask

    def totals(self) -> Sums:
        """GPU-seconds until now, since the file was begun."""
        self._pending += self._news()
        now, sums = self._now(), dict(self._closed)
        for row in self._rows.values():
            sums[row.key] = sums.get(row.key, 0.0) + row.seconds(now)
        return sums

    async def report(self, by: str, since: float, until: float | None, user: str | None) -> dict[str, Any]:
        """``{"by", "since", "until", "rows"}``; of cells the newest, and ``more`` where older ones are left out. Raises ``BadRequest``."""
        if by not in BY and by != CELLS:
            raise BadRequest(f"by can't be {by[:40]!r}: it may be {', '.join(BY)} or {CELLS}.")
        if self._file is None:
            raise ElasticError("GPU time isn't kept here just now: the gateway is starting or ending. Ask again.", reason="pending")
        await self._write(self._news())
        file, now = self._file, self._now()
        end = now if until is None else min(until, now)
        if by == CELLS:
            cells = await self._do(lambda: file.cells(since, end, user, MOST_CELLS + 1))
            rows = [_cell(row, end) for row in cells[:MOST_CELLS]]
            return {"by": by, "since": _moment(since), "until": _moment(end), "rows": rows, "more": len(cells) > MOST_CELLS}
        prices = dict(self._settings.prices)
        sums = await self._do(lambda: file.sums(by, since, end, user))
        rows = [{by: entry.pop("key"), **_rounded(entry)} for entry in together(sums, prices)]
        return {"by": by, "since": _moment(since), "until": _moment(end), "rows": rows}

    # keeping

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            rows = self._news()
            if rows or self._now() - self._written > SEEN_SECONDS:
                await self._write(rows)
            await self._forget()

    async def _forget(self) -> None:
        """What is older than the administrator wants, now and then."""
        days, file, now = self._settings.keep_days, self._file, self._now()
        if days is None or file is None or now - self._forgot < FORGET_SECONDS:
            return
        self._forgot = now
        try:
            await self._do(lambda: file.remove(now - days * DAY))
        except sqlite3.Error as exc:
            log.error("Old GPU time can't be removed from %s just now: %s", self._path, exc)

    async def _write(self, rows: list[Row]) -> None:
        file, now = self._file, self._now()
        if file is None:
            return
        rows, self._pending = [*self._pending, *rows], []
        try:
            if await self._do(file.gone):
                log.warning(
                    "%s was removed or replaced: GPU time is kept there anew from here on, and what stood in it is gone.", self._path
                )
                await self._do(file.close)
                await self._do(self._open)
                file, known = self._file, {row.id for row in rows}
                rows += [row for row in self._rows.values() if row.id not in known]  # what goes on began before
            await self._do(lambda: file.write(rows, now))
        except (sqlite3.Error, OSError) as exc:
            log.error("GPU time can't be written to %s just now: %s", self._path, exc)
            self._pending = rows + self._pending
        else:
            self._written = now

    def _news(self) -> list[Row]:
        """The book's spans as rows; what was open before goes on."""
        rows = []
        for span in self._meter.take():
            if span.user == span.kernel_id:  # somebody else's pod: it has what it waits for by its own request
                continue
            key = span.kernel_id, span.kind
            if span.end is None:
                rows.append(self._begun(key, span))
            elif key in self._rows:
                rows.append(self._ended(self._rows.pop(key), self._wall(span.end)))
        return rows

    def _begun(self, key: tuple[str, str], span: Span) -> Row:
        left = self._left.get(key)
        if left is not None and left.span.uuids == span.uuids:
            del self._left[key]
            self._rows[key] = left
            return left
        self._last_id += 1
        begin = max(self._wall(span.begin), self._ends.get(key, 0.0), 0.0 if left is None else self._left_end(left))
        row = self._rows[key] = Row(self._last_id, replace(span, begin=begin))
        return row

    def _ended(self, row: Row, end: float) -> Row:
        end = max(row.span.begin, end)
        row = replace(row, span=replace(row.span, end=end))
        self._ends[row.span.kernel_id, row.span.kind] = end
        self._closed[row.key] = self._closed.get(row.key, 0.0) + row.seconds(end)
        return row

    def _left_end(self, row: Row) -> float:
        """When a span ended while no gateway ran, as far as anybody knows."""
        record = self._book.kernels.get(row.span.kernel_id)
        if record is None:
            return self._seen
        still = row.span.kind == EXECUTED and record.gpus and record.idle_since is not None
        return self._wall(record.idle_since if still else record.since)  # type: ignore[arg-type]

    # time and thread

    def _open(self) -> Any:
        self._file = UsageFile(self._path)
        return self._file.found()

    def _now(self) -> float:
        return self._wall(self._broker._clock())

    def _wall(self, moment: float) -> float:
        return moment + self._broker._wall

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _cell(row: Row, now: float) -> dict[str, Any]:
    span = row.span
    return {
        "kernel": span.kernel_id, "user": span.user, "kernelspec": span.kernelspec, "flavor": span.flavor, "node": span.node,
        "gpus": span.gpus, "begin": _moment(span.begin), "seconds": round((span.end or now) - span.begin, 3), "running": span.end is None,
    }  # fmt: skip


def _rounded(entry: dict[str, Any]) -> dict[str, Any]:
    named = {"held": "gpu_seconds_held", "executed": "gpu_seconds_executed", "saved": "gpu_seconds_saved"}
    return {named.get(name, name): round(value, 3) for name, value in entry.items()}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
