"""What other lease rules would have cost and saved: recorded or synthetic work, played through the lease book in virtual time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from ..protocol.errors import ElasticError
from ..replay.figures import AT_ONCE, Figures
from ..replay.play import play
from ..replay.rules import Costs, Rules, read_rules
from ..replay.synthetic import synthesize
from ..replay.trace import COLUMNS, Row, Session, read_csv, sessions
from ..settings import Leases, SimulatedGpu, machine_config
from . import client, show
from .usage import when

BAR = 50  # characters of the longest


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=_count, required=True, metavar="N", help="GPUs of the cluster")
    parser.add_argument("--node-size", type=_count, default=8, metavar="N", help="GPUs of one node (default: 8)")
    work = parser.add_mutually_exclusive_group(required=True)
    work.add_argument("--trace", type=Path, metavar="FILE.csv", help=f"recorded cells: {','.join(COLUMNS)}, perhaps user")
    work.add_argument(
        "--recorded", metavar="SINCE",
        help="what the gateway itself has recorded since then (30d, a date, or all): GPU cells without their memory, no others",
    )  # fmt: skip
    work.add_argument("--synthetic-days", type=float, metavar="N", help="so many days made from a recorded workload's percentiles")
    parser.add_argument(
        "--policy", action="append", metavar="NAME",
        help="reservation, cull:SECONDS, elastic:SECONDS or oracle; give it again for more (default: one of each)",
    )  # fmt: skip
    parser.add_argument("--movable", action="store_true", help="a kernel may resume on any node: an upper bound, nothing moves kernels yet")
    parser.add_argument("--dense", action="store_true", help="synthetic cells are rows of short ones, 1 to 20 s (assumed, not recorded)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another synthetic workload of the same kind (default: 0)")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    config = machine_config()
    site, costs = Leases(config=config).policy(), SimulatedGpu(config=config).costs()
    names = args.policy or ["reservation", "cull:3600", f"elastic:{120 if site.idle_timeout is None else site.idle_timeout:g}", "oracle"]
    compared = [read_rules(name, site, Costs(costs["park_seconds"], costs["seconds_per_gb"]), args.movable) for name in names]
    if args.trace is not None:
        if args.dense:
            raise ElasticError("--dense is about synthetic work; a recorded trace has its own cells.", reason="bad_usage")
        work = read_csv(args.trace)
    elif args.recorded is not None:
        if args.dense:
            raise ElasticError("--dense is about synthetic work; a recorded trace has its own cells.", reason="bad_usage")
        work = recorded(client.cells(client.lessor(args), None if args.recorded == "all" else when(args.recorded), None))
    elif 0 < args.synthetic_days <= 3660:
        work = synthesize(args.synthetic_days, args.seed, args.dense)
    else:
        raise ElasticError(
            f"--synthetic-days is {args.synthetic_days:g}; it must be more than 0, and ten years at the most.", reason="bad_usage"
        )
    figures = [_play(work, args.gpus, args.node_size, rules) for rules in compared]
    if args.json:
        show.as_json({"policies": [asdict(each) for each in figures]})
    else:
        _print(figures)
    return 0


def recorded(cells: Iterable[dict[str, Any]]) -> list[Session]:
    """The sessions of the usage log's cells; a kernel's life is one. Raises ``ElasticError`` where there is none."""
    rows = []
    for cell in cells:
        begin = datetime.fromisoformat(cell["begin"]).timestamp()
        rows.append(Row(cell["kernel"], cell["user"] or cell["kernel"], begin, cell["seconds"], cell["gpus"]))
    return sessions(rows)


def _play(work: list[Session], gpus: int, node_size: int, rules: Rules) -> Figures:
    if sys.stderr.isatty():
        print(f"{rules.name} ...", end="\r", file=sys.stderr, flush=True)
    return play(work, gpus, node_size, rules)


def _print(figures: list[Figures]) -> None:
    columns: dict[str, Any] = {
        "POLICY": lambda f: f.name,
        "GPU-HOURS HELD": lambda f: f"{f.gpu_seconds_held / 3600:.0f}",
        "EXECUTED": lambda f: f"{f.gpu_seconds_executed / 3600:.0f}",
        "HELD/EXECUTED": lambda f: f"{f.gpu_seconds_held / f.gpu_seconds_executed:.2f}" if f.gpu_seconds_executed else "",
        "AT ONCE": lambda f: f"{100 * f.at_once:.1f} %",
        "WAIT P50": lambda f: show.span(f.wait_p50),
        "P95": lambda f: show.span(f.wait_p95),
        "P99": lambda f: show.span(f.wait_p99),
        "MAX": lambda f: show.span(f.wait_max),
        "CPU CELLS P99": lambda f: show.span(f.cpu_delay_p99),
        "ATTACH P95": lambda f: show.span(f.attach_p95),
        "FAIRNESS": lambda f: f"{f.fairness:.2f}",
        "WORST USER": lambda f: f"{100 * f.worst_user:.0f} %",
        "DENIED": lambda f: f.denied or "",
    }
    cells = {title: [str(read(each)) for each in figures] for title, read in columns.items()}
    filled = {title: column for title, column in cells.items() if any(column)}
    show.table(list(filled), zip(*filled.values(), strict=True), none="")
    print("\nGPU-hours held; # executing, - idle, . less than under the first")
    most = max(each.gpu_seconds_held for each in figures) or 1.0
    width = max(len(each.name) for each in figures)
    for each in figures:
        busy, held, first = (
            round(BAR * seconds / most) for seconds in (each.gpu_seconds_executed, each.gpu_seconds_held, figures[0].gpu_seconds_held)
        )
        print(f"{each.name:{width}} {'#' * busy}{'-' * (held - busy)}{'.' * (first - held)}")
    print(
        f"\nAt once: within {AT_ONCE:g} s. Fairness: Jain's index over users of computing / (computing + waiting), 1 where all fare alike; "
        "worst user: the smallest such share."
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of GPUs, 1 to 100000")
    return int(text)
