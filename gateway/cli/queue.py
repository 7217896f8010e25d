"""Who waits for a GPU, in the order in which they will get one."""

from __future__ import annotations

import argparse

from . import client, show

arguments = client.arguments


def run(args: argparse.Namespace) -> int:
    queue = client.lessor(args).snapshot()["queue"]
    if args.json:
        show.as_json(queue)
        return 0
    show.table(
        ("PLACE", "KERNEL", "USER", "GPUS", "WAITING FOR"),
        [(place["position"], place["kernel_id"], place["user"], place["count"], show.ago(place["since"])) for place in queue],
        none="Nobody waits.",
    )
    return 0
