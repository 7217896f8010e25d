"""Who waits for a GPU, in the order in which they will get one."""

from __future__ import annotations

import argparse

from . import client, show

arguments = client.arguments

COLUMNS = {
    "PLACE": lambda place: place["position"],
    "KERNEL": lambda place: show.short(place["kernel_id"]),
    "USER": lambda place: place["user"],
    "NOTEBOOK": lambda place: place.get("notebook", ""),
    "GPUS": lambda place: place["count"],
    "WAITING FOR": lambda place: show.ago(place["since"]),
}


def run(args: argparse.Namespace) -> int:
    show.rows(client.lessor(args).snapshot()["queue"], COLUMNS, args.json, none="Nobody waits.")
    return 0
