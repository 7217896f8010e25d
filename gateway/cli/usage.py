"""GPU time by user, kernel, kernelspec, flavor, day or cell: held, executed, and saved against kernels that keep their GPUs for life."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from datetime import UTC, datetime
from typing import Any

from ..protocol.durations import read_duration
from ..protocol.errors import ElasticError
from . import client, show

BY = ("user", "kernel", "kernelspec", "flavor", "day", "cell")
TITLES = {
    "cells": "CELLS", "gpu_seconds_held": "HELD", "gpu_seconds_executed": "EXECUTED", "gpu_seconds_saved": "SAVED", "cost": "COST",
    "gpus": "GPUS", "begin": "BEGIN", "seconds": "TOOK",
}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=BY, default="user", help="what is added up (default: user); cell lists each, newest first")
    parser.add_argument("--since", metavar="WHEN", help="a date, or how long ago: 7d (default: from the beginning)")
    parser.add_argument("--until", metavar="WHEN", help="likewise (default: now)")
    parser.add_argument("--csv", action="store_true", help="print CSV: seconds as numbers, moments in UTC")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    lessor, since, until = client.lessor(args), when(args.since), when(args.until)
    if args.by == "cell":
        rows = list(client.cells(lessor, since, until))
        told: dict[str, Any] = {"by": args.by, "rows": rows}
    else:
        told = lessor.usage(args.by, since, until)
        rows = told["rows"]
    if args.json:
        show.as_json(told)
    elif args.csv:
        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [args.by], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        names = list(rows[0]) if rows else []
        titles = [TITLES.get(name, name.upper()) for name in names]
        show.table(titles, [[shown(name, row[name]) for name in names] for row in rows], none="No kernel has had a GPU in that time.")
    return 0


def shown(name: str, value: Any) -> str:
    if name.startswith("gpu_seconds") or name == "seconds":
        return show.span(value)
    if name == "cost":
        return f"{value:.2f}"
    if name == "kernel":
        return show.short(value)
    return ("yes" if value else "") if isinstance(value, bool) else str(value)


def when(text: str | None, now: float | None = None) -> float | None:
    """Seconds since 1970 from a date or a time ago. Raises ``ElasticError``."""
    if text is None:
        return None
    ago = read_duration(text)
    try:
        if ago is not None:
            at = (time.time() if now is None else now) - ago
        else:
            found = datetime.fromisoformat(text)
            at = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        datetime.fromtimestamp(at, UTC)  # there is such a year in UTC
        return at
    except (ValueError, OverflowError, OSError):
        raise ElasticError(f"{text!r} is no moment: write 2030-01-31, or 7d for a week ago.", reason="bad_usage") from None
