"""Work made from the percentiles of a real one: 59 notebook sessions of two days, and as many again for each two days more.

The percentiles, and where they are from, are in ``interactive_gpu_workload.json`` beside this file (``june1_2_60s``, minutes). Each
quantity is drawn by the inverse of its distribution, log-linear between the percentiles, at evenly spread ranks in random order: so a
sample of two days has the recorded distribution and not one that a few draws of its long tail make. Kept is each distribution by itself:
GPUs of a session, its length, its number of cells, first cell's delay, tail, cells' durations, the gaps between them, memory. Few gaps are
long, so cells come in bursts with long absences between, as recorded. What the percentiles can't tell is assumed:

- Cells and gaps are dealt to the sessions, longest first, each to one that still has room for it (by its drawn length), so that sessions
  are about as long as recorded; sessions with more cells are not otherwise longer, and length has nothing to do with GPUs.
- Cells that need no GPU take as long as those that do; beside the sessions without any GPU they are spread at random.
- Sessions begin at any moment from which they end within their two days, each by a user of its own. All GPUs of a session count as used.

``dense``: assumed altogether, as cells shorter than a minute are invisible in the recording. Each cell becomes a row of short ones of 1 to
20 s, with gaps of the same distribution.
"""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from pathlib import Path

from .trace import Cell, Session

WINDOW = 2 * 86400.0
RECORDED = Path(__file__).with_name("interactive_gpu_workload.json")
SHORTEST, LONGEST = 1.0, 20.0  # seconds of a dense cell


class Distribution:
    """The inverse of one, from ``{percent: value}``."""

    def __init__(self, percentiles: dict[str, float]) -> None:
        self._points = sorted((float(percent) / 100, float(value)) for percent, value in percentiles.items())

    def at(self, rank: float) -> float:
        for (low, a), (high, b) in pairwise(self._points):
            if rank <= high:
                part = (rank - low) / (high - low)
                return math.exp(math.log(a) + part * (math.log(b) - math.log(a))) if a > 0 else a + part * (b - a)
        return self._points[-1][1]

    def sample(self, count: int, chance: random.Random) -> list[float]:
        """So many at evenly spread ranks, each anywhere in its own stretch, in random order."""
        drawn = [self.at((rank + chance.random()) / count) for rank in range(count)]
        chance.shuffle(drawn)
        return drawn


def synthesize(days: float, seed: int = 0, dense: bool = False) -> list[Session]:
    """The sessions of so many days by their start, the last of them cut off where ``days`` end within a window of two."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["june1_2_60s"]
    chance = random.Random(seed)
    sessions = [
        session for window in range(math.ceil(days * 86400 / WINDOW)) for session in _window(recorded, window, chance, dense)
    ]  # fmt: skip
    return sorted((each for each in sessions if each.start < days * 86400), key=lambda session: session.start)


class _Room:
    """What one session may still be dealt: slots of each kind, and minutes."""

    def __init__(self, cells: int, length: float) -> None:
        self.left, self.length = length, length
        self.slots = {"delay": 1, "cell": cells, "gap": cells - 1, "tail": 1}
        self.dealt: dict[str, list[float]] = {kind: [] for kind in self.slots}

    def take(self, kind: str, minutes: float) -> None:
        self.slots[kind] -= 1
        self.left -= minutes
        self.dealt[kind].append(minutes)


def _window(recorded: dict, window: int, chance: random.Random, dense: bool) -> list[Session]:
    def sample(what: str, count: int) -> list[float]:
        return Distribution(recorded[what]).sample(count, chance)

    # 1. Sessions: their GPUs, how many cells, how long
    gpus = [int(count) for count, sessions in recorded["session_gpus"].items() for _ in range(sessions)]
    chance.shuffle(gpus)
    counts = [round(count) for count in sample("tasks_per_session", len(gpus))]
    rooms = [_Room(count, length) for count, length in zip(counts, sample("session_length", len(gpus)), strict=True)]
    # 2. All there is to deal, longest first
    cells = sum(counts)
    wanted = {"delay": ("first_task_delay", len(gpus)), "cell": ("gpu_task_duration", cells),
        "gap": ("gap_any", cells - len(gpus)), "tail": ("tail_after_last_task", len(gpus)),
    }  # fmt: skip
    dealt = [(minutes, kind) for kind, (what, count) in wanted.items() for minutes in sample(what, count)]
    for minutes, kind in sorted(dealt, reverse=True):
        open_ = [room for room in rooms if room.slots[kind]]
        fitting = [room for room in open_ if room.left >= minutes] or [max(open_, key=lambda room: room.left)]
        chance.choices(fitting, [room.slots[kind] for room in fitting])[0].take(kind, minutes)
    # 3. Which cells need no GPU, and what the others leave on it
    ours = [at for at, count in enumerate(gpus) for _ in range(counts[at]) if count]
    without = round(cells * recorded["cpu_only_tasks"] / recorded["tasks"]) - (cells - len(ours))
    needs = [False] * without + [True] * (len(ours) - without)
    chance.shuffle(needs)
    memory = iter(sample("vram_gb_per_gpu_task", cells))
    flags = iter(needs)
    # 4. In the order in which a user goes
    sessions = []
    for at, (count, room) in enumerate(zip(gpus, rooms, strict=True)):
        for minutes in room.dealt.values():
            chance.shuffle(minutes)
        gaps = [*room.dealt["delay"], *room.dealt["gap"]]
        made = []
        for gap, length in zip(gaps, room.dealt["cell"], strict=True):
            used = count if count and next(flags) else 0
            state = int(next(memory) * 1e9) if used else 0
            made += _dense(60 * gap, 60 * length, used, state, chance) if dense else [Cell(60 * gap, 60 * length, used, state)]
        lasts = 60 * sum(map(sum, room.dealt.values()))
        start = window * WINDOW + chance.uniform(0, max(0.0, WINDOW - lasts))
        name = f"w{window}s{at}"
        sessions.append(Session(name, name, start, count, tuple(made), 60 * room.dealt["tail"][0]))
    return sessions


def _dense(gap: float, length: float, gpus: int, memory: int, chance: random.Random) -> list[Cell]:
    """A row of short cells in place of one, as long with its gaps."""
    row, left = [], length
    while left > 0:
        short, pause = (SHORTEST * (LONGEST / SHORTEST) ** chance.random() for _ in range(2))
        short = min(short, left)
        row.append(Cell(pause if row else gap, short, gpus, memory))
        left -= short + pause
    return row
