"""Stop the gateway. Its kernels go on and the next gateway finds them, unless --kernels ends them too."""

from __future__ import annotations

import argparse

from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernels", action="store_true", help="end all kernels too; what they had in memory is lost")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    gateway = client.connect(args)
    answer = gateway.request("POST", "/api/shutdown", {"kernels": args.kernels}, seconds=120)
    if args.json:
        show.as_json(answer)
    elif args.kernels:
        print(f"Gateway {gateway.url} stops; {answer['ended']} kernels have ended.")
    else:
        print(f"Gateway {gateway.url} stops; its kernels go on.")
    return 0
