"""Every kernel, whose it is, its phase, what it holds and since when."""

from __future__ import annotations

import argparse
from typing import Any

from . import client, show

arguments = client.arguments

COLUMNS = {
    "KERNEL": lambda lease: show.short(lease["kernel_id"]),
    "USER": lambda lease: lease["user"],
    "NOTEBOOK": lambda lease: lease.get("notebook") or lease.get("kernel_name", ""),
    "PHASE": lambda lease: lease["phase"] + ("*" if lease["executing"] else ""),
    "SINCE": lambda lease: show.ago(lease["since"]),
    "IDLE": lambda lease: show.ago(lease["idle_since"]),
    "ENDS IN": lambda lease: show.ahead(lease["ends_by"]),
    "HELD FOR": lambda lease: show.ahead(lease.get("hold_until")),
    "PARKED": lambda lease: show.size(lease["parked_bytes"]) if lease["parked_bytes"] else "",
    "GPUS": lambda lease: " ".join(lease["gpus"]),
}


def run(args: argparse.Namespace) -> int:
    leases: list[dict[str, Any]] = client.lessor(args).snapshot()["leases"]
    show.rows(leases, COLUMNS, args.json, none="No kernel runs that leases GPUs.")
    if not args.json and any(lease["executing"] for lease in leases):
        print("* a cell runs")
    return 0
