"""Take the GPU from an idle kernel; its state is parked and comes back with its next GPU cell."""

from __future__ import annotations

import argparse

from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", help="id of the kernel, or how it begins")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    lessor = client.lessor(args)
    kernel = client.kernel_id(lessor, args.kernel)
    lessor.release(kernel)
    if args.json:
        show.as_json(lessor.snapshot())
    else:
        print(f"Kernel {kernel} releases its GPU.")
    return 0
