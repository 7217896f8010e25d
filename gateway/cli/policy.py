"""Show the lease policy in force, or change some of it until the gateway (or broker) that runs now ends."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..protocol.errors import ElasticError
from ..settings import Leases, Seconds
from . import client, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("change", nargs="*", metavar="NAME=VALUE", help="a number, a duration, true, false or none; e.g. idle_timeout=2m")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    changes = dict(map(change, args.change))
    rules = client.lessor(args).policy(changes)
    if args.json:
        show.as_json(rules)
    else:
        show.table(("SETTING", "VALUE"), [(name, show.setting(value)) for name, value in sorted(rules.items())], none="")
    return 0


def change(text: str) -> tuple[str, Any]:
    """``("idle_timeout", 120.0)`` from ``idle_timeout=2m``; whether it can hold is for the gateway to say."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ElasticError(f"{text!r} isn't NAME=VALUE.", reason="bad_usage")
    if value.lower() in ("none", "null"):
        return name, None
    try:
        return name, json.loads(value.lower())
    except ValueError:
        if isinstance(Leases.class_traits().get(name), Seconds):
            return name, show.duration(value)
        raise ElasticError(f"{name} can't be {value!r}: write a number, true, false or none.", reason="bad_usage") from None
