"""The one picture of who holds what, as ``GET /api/gpu`` shows it, and what has changed between two of them. Pure.

It must never show anything that can't be asked for again: nothing here is kept anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ..leases import snapshot as leases
from ..leases.book import Book


class Wall:
    """What to add to ``clock()``, which is steady, for seconds since 1970. It stays the same until ``time`` jumps, so that what has not
    changed looks the same in each picture."""

    JUMP = 1.0  # seconds; a clock that is set right bit by bit is off by less

    def __init__(self, clock: Callable[[], float], time: Callable[[], float]) -> None:
        self._clock, self._time = clock, time
        self._offset = time() - clock()

    @property
    def offset(self) -> float:
        now = self._time() - self._clock()
        if abs(now - self._offset) > self.JUMP:
            self._offset = now
        return self._offset


def snapshot(book: Book, generation: int, now: float, wall: float, alarms: Mapping[str, str]) -> dict[str, Any]:
    """``now`` on the broker's clock, ``wall``: what to add to it for seconds since 1970; ``alarms``: by kernel. Kernels that never
    lease are left out."""
    picture: dict[str, Any] = leases.snapshot(book, now)
    for lease in picture["leases"]:
        lease["alarm"] = alarms.get(lease["kernel_id"], "")
    for entry in [*picture["leases"], *picture["queue"]]:
        for name in leases.PAST:
            if name in entry:
                entry[name] = _time(entry[name], now + wall, -1)
        for name in leases.AHEAD:
            if name in entry:
                entry[name] = _time(entry[name], now + wall, 1)
    return {**picture, "generation": generation}


def changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """``(name, value)``: ``lease`` a new or changed one, ``lease_gone`` its kernel_id, ``queue``, ``gpus``, ``drained`` and ``elsewhere``
    whole."""
    before = {lease["kernel_id"]: lease for lease in old["leases"]}
    for lease in new["leases"]:
        if before.pop(lease["kernel_id"], None) != lease:
            yield "lease", lease
    for kernel_id in before:
        yield "lease_gone", {"kernel_id": kernel_id}
    for name in ("queue", "gpus", "drained", "elsewhere"):
        if old[name] != new[name]:
            yield name, new[name]


def _time(seconds: float | None, now: float, sign: int) -> str | None:
    """ISO 8601 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(round(now + sign * seconds, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
