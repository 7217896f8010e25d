"""Roles that the user has named, beside an engine's own processes: the same cell runs in them, and knows by ``ROLE`` which it is. Pure but
for free ports.

Each member has an address of its own, which all others are told. It must never make a member part of what the engine holds together.
"""

from __future__ import annotations

import json
from typing import Any

from ...protocol import burst
from ...protocol.burst import Process
from ...protocol.roles import members
from ..layout import layout, shares
from ..record import Record
from .spmd import free_ports, python


def with_roles(record: Record, request: dict[str, Any], made: list[Process]) -> list[Process]:
    """``made``: the engine's processes."""
    found = [member for member in members(layout(record)) if member.role.runs_cell]
    first = found[0].role
    if all(member.role is first for member in found):
        return made
    ports = iter(free_ports(len(found) + len(record.roles)))
    addresses: dict[str, list[str]] = {}
    for member in found:
        addresses.setdefault(member.role.name, []).append(f"127.0.0.1:{next(ports)}")
    meeting = {name: str(next(ports)) for name in addresses if name != first.name}
    gpus, workers = shares(record), record.leased[: record.workers * record.gpus]
    for process in made:
        process.env |= {burst.ROLE_VARIABLE: first.name, burst.ADDRESSES_VARIABLE: json.dumps(addresses)} if process.ranks else {}
        process.gpus = workers if process.gpus is None else process.gpus
    for member in found:
        role = member.role
        if role is first:
            continue
        env = {
            "RANK": str(member.rank), "WORLD_SIZE": str(role.count), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": meeting[role.name], burst.FIRST_VARIABLE: str(member.number - member.rank), burst.ROLE_VARIABLE: role.name,
            burst.ADDRESSES_VARIABLE: json.dumps(addresses),
        }  # fmt: skip
        argv, name = [*python(request), "-m", "gateway.pod.burst.worker"], f"{role.name} {member.rank}"
        made.append(Process(argv=argv, env=env, name=name, gpus=gpus[member.number], number=member.number, follows=True))
    return made
