"""Leave a kernel its GPU for a while although it is idle; 0 ends that."""

from __future__ import annotations

import argparse

from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", help="id of the kernel, or how it begins")
    parser.add_argument("duration", help="seconds, or 30m, or 1h30m; 0 ends an earlier hold")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    seconds = show.duration(args.duration)
    lessor = client.lessor(args)
    kernel = client.kernel_id(lessor, args.kernel)
    lessor.hold(kernel, seconds)
    if args.json:
        show.as_json(lessor.snapshot())
    elif seconds:
        lease = next((lease for lease in lessor.snapshot()["leases"] if lease["kernel_id"] == kernel), {})
        begins = "" if lease.get("gpus") else ": it holds none now, and keeps the one that it gets in that time"
        print(f"Kernel {kernel} keeps its GPU for {show.span(seconds)}{begins}.")
    else:
        print(f"Kernel {kernel} keeps its GPU no longer than others do.")
    return 0
