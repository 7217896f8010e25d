"""Take a node out of service: cells there end, its GPUs are given back, and nothing new begins; --off ends that."""

from __future__ import annotations

import argparse
from typing import Any

from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", help="name of the node, as `status` shows it; a machine without Kubernetes is called local")
    parser.add_argument("--off", action="store_true", help="put it into service again")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    lessor = client.lessor(args)
    lessor.drain(args.node, not args.off)
    state = lessor.snapshot()
    if args.json:
        show.as_json(state)
    elif args.off:
        print(f"Node {args.node} is in service.")
    else:
        print(f"Node {args.node} is being drained: no kernel starts there, and no cell gets a GPU. {left(state, args.node)}")
    return 0


def left(state: dict[str, Any], node: str) -> str:
    """Who is still on its GPUs."""
    gpus = {gpu["uuid"] for gpu in state["gpus"] if gpu["node"] == node}
    held = [show.short(lease["kernel_id"]) for lease in state["leases"] if gpus & set(lease["gpus"])]
    if not held:
        return "Its GPUs are free."
    return f"GPUs are still with {', '.join(held)}, until its cell has ended or, if it can't be parked, the kernel has (`leases` shows it)."
