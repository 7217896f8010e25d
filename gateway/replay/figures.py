"""What a run comes to. Seconds throughout; it must never weigh one figure against another."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .trace import Cell

AT_ONCE = 10.0  # seconds: what parking one kernel and resuming another take at the most


@dataclass(frozen=True)
class Figures:
    """``wait_*``: of GPU cells, from being sent until they run. ``at_once``: the share of them that ran within ``AT_ONCE``.

    ``cpu_delay_p99``: the same wait, of cells that need no GPU. ``attach_*``: what bringing state back takes of a wait, where some had
    to be. ``fairness``: each user's share of computing in computing and waiting, over the users by Jain's index, (Σx)² ÷ n Σx²: 1 where
    all fare alike. ``worst_user``: the smallest such share. ``denied``: GPU cells that ended with an error in place of a GPU.
    """

    name: str
    gpu_seconds_held: float
    gpu_seconds_executed: float
    at_once: float
    wait_p50: float
    wait_p95: float
    wait_p99: float
    wait_max: float
    cpu_delay_p99: float
    attach_p50: float
    attach_p95: float
    fairness: float
    worst_user: float
    denied: int


class Tally:
    def __init__(self) -> None:
        self.held = 0.0
        self._executed: list[float] = []
        self._waits: list[float] = []
        self._delays: list[float] = []
        self._attached: list[float] = []
        self._denied = 0
        self._waited: dict[str, float] = defaultdict(float)
        self._ran: dict[str, float] = defaultdict(float)

    def started(self, user: str, cell: Cell, waited: float) -> None:
        self._executed.append(cell.gpus * cell.duration)
        (self._waits if cell.gpus else self._delays).append(waited)
        self._waited[user] += waited
        self._ran[user] += cell.duration

    def denied(self, user: str, cell: Cell, waited: float) -> None:
        self._denied += 1
        self._waits.append(waited)
        self._waited[user] += waited

    def attached(self, seconds: float) -> None:
        self._attached.append(seconds)

    def figures(self, name: str) -> Figures:
        waits, attached = sorted(self._waits), sorted(filter(None, self._attached))
        shares = [ran / (ran + self._waited[user]) for user, ran in self._ran.items() if ran]
        squares = sum(share * share for share in shares)
        return Figures(
            name,
            gpu_seconds_held=self.held,
            gpu_seconds_executed=math.fsum(self._executed),
            at_once=sum(wait <= AT_ONCE for wait in waits) / len(waits) if waits else 1.0,
            wait_p50=percentile(waits, 50),
            wait_p95=percentile(waits, 95),
            wait_p99=percentile(waits, 99),
            wait_max=percentile(waits, 100),
            cpu_delay_p99=percentile(sorted(self._delays), 99),
            attach_p50=percentile(attached, 50),
            attach_p95=percentile(attached, 95),
            fairness=sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0,
            worst_user=min(shares, default=1.0),
            denied=self._denied,
        )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent don't exceed; 0 of none."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0.0
