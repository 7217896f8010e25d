"""Make a token for a user: what the user keeps, and the line with its hash for the gateway's users file."""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets

from ..protocol.errors import ElasticError
from . import show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", help="name of the user")
    parser.add_argument("--group", action="append", default=[], metavar="NAME", help="a group of the user; may be said several times")
    parser.add_argument("--admin", action="store_true", help="may do everything")
    parser.add_argument("--front-end", action="store_true", help="a server of many users, trusted to say whose kernels it starts")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    if not args.user or not args.user.isprintable():
        raise ElasticError(f"{args.user[:40]!r} can't be the name of a user.", reason="bad_usage")
    token = secrets.token_hex(24)
    entry = {"token": f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"}
    entry |= {"groups": args.group} if args.group else {}
    entry |= {name: True for name in ("admin", "front_end") if getattr(args, name)}
    if args.json:
        show.as_json({"user": args.user, "token": token, "entry": entry})
    else:
        print(f"Token of {args.user}, shown this once:\n  {token}\n\nFor the users file (ElasticIdentityProvider.users_file):")
        print(f"{json.dumps(args.user)}: {json.dumps(entry)}")
    return 0
