"""A month of 100,000 cells through the lease book: how long a replay computes for each policy."""

from __future__ import annotations

import csv
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gateway.replay.play import play
from gateway.replay.rules import Costs, read_rules
from gateway.replay.synthetic import synthesize
from gateway.replay.trace import COLUMNS, Session, read_csv
from gateway.settings import Leases

DAY = 86400.0
BUSY = 8.6  # months of synthetic work in one: 100,000 cells
POLICIES = ("reservation", "cull:3600", "elastic:120", "oracle")


def busy(days: float) -> list[Session]:
    """The sessions of many more days, all in so many."""
    sessions = [replace(session, start=session.start % (days * DAY)) for session in synthesize(BUSY * days)]
    return sorted(sessions, key=lambda session: session.start)


def write(sessions: list[Session], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for session in sessions:
            at = session.start
            for cell in session.cells:
                at += cell.gap
                writer.writerow([session.name, at, cell.duration, cell.gpus, cell.memory])
                at += cell.duration


async def month() -> dict[str, float]:
    """Seconds of one core to read and replay 100,000 cells of a month: 576 GPUs in nodes of 8."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "month.csv")
        write(busy(30), path)
        began = time.process_time()
        sessions = read_csv(path)
        found = {"cells": float(sum(len(session.cells) for session in sessions)), "read_s": time.process_time() - began}
    for name in POLICIES:
        began = time.process_time()
        play(sessions, 576, 8, read_rules(name, Leases().policy(), Costs(0.5, 0.1)))
        found[f"{name}_s"] = time.process_time() - began
    return found
