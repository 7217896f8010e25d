"""Engine ``tf-ps``: TensorFlow's parameter servers and workers, each a server of TensorFlow's own, and a chief that runs the cell.

``TFConfigClusterResolver()`` in the cell finds them. TensorFlow's servers listen on all addresses, and run what anybody sends them: whoever
asks for this engine on a machine of its own must have been asked whether everybody there is trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...protocol.burst import Process
from ...protocol.roles import CHIEF, PS, WORKER, Member, members
from ..layout import layout, shares
from ..record import Record
from .spmd import free_ports, python


def processes(record: Record, request: dict[str, Any], folder: Path) -> list[Process]:
    found = cluster(record)
    addresses = {member.number: f"127.0.0.1:{port}" for member, port in zip(found, free_ports(len(found)), strict=True)}
    gpus = shares(record)
    made = [process(request, found, addresses, member, gpus[member.number]) for member in found]
    return [*made[1:], made[0]]  # the chief asks for the others


def cluster(record: Record) -> list[Member]:
    """Those that TensorFlow holds together."""
    return [member for member in members(layout(record)) if member.role.name in (CHIEF, WORKER, PS)]


def process(
    request: dict[str, Any], found: Sequence[Member], addresses: Mapping[int, str], member: Member, gpus: list[str] | None = None
) -> Process:
    """``addresses``: of all members, by number. ``gpus``: UUIDs that it sees; None: those that are to be seen."""
    spec: dict[str, list[str]] = {}
    for each in found:
        spec.setdefault(each.role.name, []).append(addresses[each.number])
    task = {"type": member.role.name, "index": member.rank}
    env = {"TF_CONFIG": json.dumps({"cluster": spec, "task": task}), **_quietly(addresses.values())}
    if member.role.name == CHIEF:
        env |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        return Process(argv=[*python(request), "-m", "gateway.pod.burst.worker"], env=env, name="the chief", gpus=gpus)
    name = f"{member.role.name} {member.rank}"
    return Process(argv=[*python(request), "-m", "gateway.pod.burst.tf_server"], env=env, name=name, ranks=0, gpus=gpus)


def _quietly(addresses: Iterable[str]) -> Mapping[str, str]:
    """gRPC as TensorFlow wants it here: it gives up on a server that is gone, and looks for none of them behind a proxy."""
    return {"GRPC_FAIL_FAST": "use_caller", "no_grpc_proxy": ",".join(dict.fromkeys(each.rpartition(":")[0] for each in addresses))}
