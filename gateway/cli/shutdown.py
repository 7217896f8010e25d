"""Stop the gateway. Its kernels go on and the next gateway finds them, unless --kernels ends them too.

Where no gateway runs, the broker that serves processes without one is stopped, if nobody needs it; --kernels then ends what a gateway
that has gone has left.
"""

from __future__ import annotations

import argparse

from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernels", action="store_true", help="end all kernels of the gateway too; what they had in memory is lost")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    lessor = client.lessor(args, or_left_kernels=args.kernels)
    said = lessor.shutdown(args.kernels)
    if args.json:
        show.as_json(said)
        return 0
    if lessor.kind == client.GATEWAY:
        rest = f"{show.count(said['ended'], 'kernel')} ended" if args.kernels else "its kernels go on"
        print(f"Gateway {lessor.url} stops; {rest}.")
        return 0
    if said["stopped"]:
        print("No gateway runs. The broker for processes without one stops.")
    if said["ended"]:
        print(f"{show.count(said['ended'], 'kernel')} that a gateway had left ended.")
    elif not said["stopped"]:
        print("No gateway runs, and none has left a kernel.")
    return 0
