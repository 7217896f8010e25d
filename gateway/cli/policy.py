"""Show the lease policy of a running gateway, or change some of it until that gateway stops."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..protocol.errors import ElasticError
from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("change", nargs="*", metavar="NAME=VALUE", help="a number, true, false or none; e.g. idle_timeout=60")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    changes = dict(map(change, args.change))
    gateway = client.connect(args)
    rules = gateway.request("PATCH", "/api/gpu/policy", changes) if changes else gateway.get("/api/gpu/policy")
    if args.json:
        show.as_json(rules)
    else:
        show.table(("SETTING", "VALUE"), [(name, "none" if value is None else value) for name, value in sorted(rules.items())], none="")
    return 0


def change(text: str) -> tuple[str, Any]:
    """``("idle_timeout", 60)`` from ``idle_timeout=60``; whether it can hold is for the gateway to say."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ElasticError(f"{text!r} isn't NAME=VALUE.", reason="bad_usage")
    if value.lower() in ("none", "null"):
        return name, None
    try:
        return name, json.loads(value.lower())
    except ValueError:
        raise ElasticError(f"{name} can't be {value!r}: write a number, true, false or none.", reason="bad_usage") from None
