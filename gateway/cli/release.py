"""Take the GPU from an idle kernel; its state is parked and comes back with its next GPU cell."""

from __future__ import annotations

import argparse

from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", help="id of the kernel, or how it begins")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    gateway = client.connect(args)
    kernel = client.kernel_id(gateway, args.kernel)
    state = gateway.request("POST", f"/api/gpu/kernels/{kernel}/release")
    if args.json:
        show.as_json(state)
    else:
        print(f"Kernel {kernel} releases its GPU.")
    return 0
