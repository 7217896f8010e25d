"""Show the lease policy in force, for all or for one kernel and why, or change some of it, also for the gateways to come."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..protocol.errors import ElasticError
from ..settings import Leases, QuietHours, Seconds
from . import client, show

SECTIONS = {"user": "users", "group": "groups", "kernelspec": "kernelspecs", "flavor": "flavors"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("change", nargs="*", metavar="NAME=VALUE", help="a number, a duration, true, false or none; e.g. idle_timeout=2m")
    one = parser.add_mutually_exclusive_group()
    for level in SECTIONS:
        one.add_argument(f"--{level}", metavar="NAME", help=f"change it for this {level} alone")
    one.add_argument("--kernel", metavar="KERNEL", help="show what holds for this kernel, and why (its id, or how it begins)")
    parser.add_argument(
        "--undo", action="store_true", help="take back what was changed for the site, or for that user, group, kernelspec or flavor"
    )
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    changes: dict[str, Any] = dict(map(change, args.change))
    level = next((level for level in SECTIONS if getattr(args, level)), None)
    if args.undo and (changes or args.kernel):
        raise ElasticError("--undo stands alone, or with --user, --group, --kernelspec or --flavor.", reason="bad_usage")
    if args.kernel and changes:
        raise ElasticError("A kernel has no policy of its own: change that of its --user, --kernelspec or --flavor.", reason="bad_usage")
    if level is not None:
        if not changes and not args.undo:
            raise ElasticError(f"Say what to change for that {level}: NAME=VALUE, or --undo.", reason="bad_usage")
        changes = {SECTIONS[level]: {getattr(args, level): None if args.undo else changes}}
    elif args.undo:
        changes = {"site": None}
    lessor = client.lessor(args)
    if args.kernel:
        return explain(lessor.explain(client.kernel_id(lessor, args.kernel)), args.json)
    rules = lessor.policy(changes)
    if args.json:
        show.as_json(rules)
        return 0
    sections = {level: rules.pop(section, {}) for level, section in SECTIONS.items()}
    file, made, unkept = rules.pop("file", None), rules.pop("changes", []), rules.pop("unkept", "")
    who = {(each["section"], each["name"], each["setting"]): f"{each['by'] or 'somebody'}, {each['at']}" for each in made}
    rows = [("site", name, show.setting(value), who.get(("site", "", name), "")) for name, value in sorted(rules.items())]
    for level, named in sections.items():
        for name, said in named.items():
            for setting, value in said.items():
                rows.append((f"{level} {name}", setting, show.setting(value), who.get((SECTIONS[level], name, setting), "")))
    show.table(("FOR", "SETTING", "VALUE", "CHANGED WHILE RUNNING"), rows, none="")
    if unkept:
        print(f"\n{unkept}")
    if file:
        print(f"\nPolicy file: {file['path']}" + (f"\nIt doesn't count as it is now: {file['error']}" if file["error"] else ""))
    return 0


def explain(told: dict[str, Any], as_json: bool) -> int:
    """What holds for one kernel."""
    if as_json:
        show.as_json(told)
        return 0
    groups = f" ({', '.join(told['groups'])})" if told["groups"] else ""
    user = f"{told['user'] or 'nobody by name'}{groups}"
    print(f"Kernel {told['kernel_id']} of {user}, kernelspec {told['kernelspec']}, GPUs {told['flavor']}\n")
    rows = []
    for name, said in sorted(told["settings"].items()):
        over = ", ".join(f"{show.setting(other['value'])} ({whose(other)})" for other in said["over"])
        rows.append((name, show.setting(said["value"]), whose(said), said["source"], over))
    show.table(("SETTING", "VALUE", "SAID FOR", "WHERE", "OVER"), rows, none="")
    return 0


def whose(said: dict[str, Any]) -> str:
    return f"{said['level']} {said['name']}".strip()


def change(text: str) -> tuple[str, Any]:
    """``("idle_timeout", 120.0)`` from ``idle_timeout=2m``; whether it can hold is for the gateway to say."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ElasticError(f"{text!r} isn't NAME=VALUE.", reason="bad_usage")
    trait = Leases.class_traits().get(name)
    if isinstance(trait, QuietHours):
        return name, value
    if value.lower() in ("none", "null"):
        return name, None
    try:
        return name, json.loads(value.lower())
    except ValueError:
        if isinstance(trait, Seconds):
            return name, show.duration(value)
        raise ElasticError(f"{name} can't be {value!r}: write a number, true, false or none.", reason="bad_usage") from None
