"""The kernels that the gateway offers, with the GPUs that each asks for and its profile.

Importing kernelspecs of an Enterprise Gateway is not in this version.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..protocol.errors import ElasticError
from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("do", nargs="*", metavar="", help=argparse.SUPPRESS)
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.do:
        what = "not in this version" if args.do[0] == "import" else "no word that it knows"
        raise ElasticError(f"`{' '.join(args.do)}` is {what}; alone it lists the kernels.", reason="bad_usage")
    offered = client.connect(args).get("/api/kernelspecs")
    if args.json:
        show.as_json(offered)
        return 0
    default = offered["default"]
    rows = [row(name, each["spec"], name == default) for name, each in sorted(offered["kernelspecs"].items())]
    show.table(("NAME", "SHOWN AS", "LANGUAGE", "GPUS", "PROFILE"), rows, none="This gateway offers no kernel.")
    return 0


def row(name: str, spec: dict[str, Any], default: bool) -> tuple[str, ...]:
    """What a kernelspec doesn't say itself comes from settings, which only the gateway knows."""
    config = (spec.get("metadata") or {}).get("kernel_provisioner", {}).get("config", {})
    shown = f"{spec['display_name']} (default)" if default else spec["display_name"]
    return name, shown, spec["language"], str(config.get("gpus", "default")), str(config.get("profile", "default"))
