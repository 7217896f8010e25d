"""How often what has happened in the book, and how long it took, since the broker started: for whoever watches it.

Plain counts; nothing here decides, and nothing is ever taken back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict

BOUNDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 14400.0)  # seconds


class Histogram:
    """Durations in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """``(upper bound, how many up to it)``, as Prometheus has them."""
        found, count = [], 0
        for bound, each in zip([*map(str, BOUNDS), "+Inf"], self._counts, strict=True):
            count += each
            found.append((bound, count))
        return found


class Tally:
    """``waits``: from the moment a cell needs a GPU until it is granted. ``attaches``: from there until it is usable. Both by flavor.
    ``parks`` by why, ``refused`` (parks that a supervisor refused) by its reason, ``denied`` (waits that ended in vain) by theirs."""

    def __init__(self) -> None:
        self.waits: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.attaches: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.parks: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.denied: Counter[str] = Counter()
