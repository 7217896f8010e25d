"""Every kernel, its phase, what it holds and since when."""

from __future__ import annotations

import argparse

from . import client, show

arguments = client.arguments


def run(args: argparse.Namespace) -> int:
    leases = client.lessor(args).snapshot()["leases"]
    if args.json:
        show.as_json(leases)
        return 0
    show.table(
        ("KERNEL", "USER", "PHASE", "SINCE", "IDLE", "ENDS IN", "PARKED", "GPUS"),
        [
            (
                lease["kernel_id"],
                lease["user"],
                lease["phase"] + ("*" if lease["executing"] else ""),
                show.ago(lease["since"]),
                show.ago(lease["idle_since"]),
                show.ahead(lease["ends_by"]),
                show.size(lease["parked_bytes"]) if lease["parked_bytes"] else "",
                " ".join(lease["gpus"]),
            )
            for lease in leases
        ],
        none="No kernel runs.",
    )
    if any(lease["executing"] for lease in leases):
        print("* a cell runs")
    return 0
