"""Roles that the user has named, beside an engine's own processes: the same cell runs in them, and knows by ``ROLE`` which it is. Pure but
for free ports.

Each member has an address of its own, which all others are told. It must never make a member part of what the engine holds together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ...protocol import burst
from ...protocol.burst import Process
from ...protocol.roles import Member, members
from ..layout import layout, shares
from ..record import Record
from .spmd import free_ports, python


def with_roles(record: Record, request: dict[str, Any], made: list[Process]) -> list[Process]:
    """On one machine. ``made``: the engine's processes."""
    found = members(layout(record))
    first = found[0].role
    named = [member for member in found if member.role.runs_cell and member.role is not first]
    if not named:
        return made
    ports = free_ports(len(found) + len(record.roles))
    addresses = [f"127.0.0.1:{port}" for port in ports[: len(found)]]
    meeting = dict(zip(dict.fromkeys(member.role.name for member in named), map(str, ports[len(found) :]), strict=False))
    gpus, workers = shares(record), record.leased[: record.workers * record.gpus]
    for process in made:
        process.gpus = workers if process.gpus is None else process.gpus
    told(made, found, addresses, found[0])
    for member in named:
        role = member.role
        env = {
            "RANK": str(member.rank), "WORLD_SIZE": str(role.count), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": meeting[role.name], burst.FIRST_VARIABLE: str(member.number - member.rank),
        }  # fmt: skip
        argv, name = [*python(request), "-m", "gateway.pod.burst.worker"], f"{role.name} {member.rank}"
        process = Process(argv=argv, env=env, name=name, gpus=gpus[member.number], number=member.number, follows=True)
        told([process], found, addresses, member)
        made.append(process)
    return made


def told(made: Iterable[Process], found: Sequence[Member], addresses: Sequence[str], member: Member) -> None:
    """Ranks among ``made`` are told that they are of the role of ``member``, and the addresses of all that run the cell, where there are
    several roles that do. ``addresses``: by number."""
    by_role: dict[str, list[str]] = {}
    for each in found:
        if each.role.runs_cell:
            by_role.setdefault(each.role.name, []).append(addresses[each.number])
    if len(by_role) > 1:
        for process in made:
            if process.ranks:
                process.env |= {burst.ROLE_VARIABLE: member.role.name, burst.ADDRESSES_VARIABLE: json.dumps(by_role)}
