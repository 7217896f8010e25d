"""Engine ``none``: the same program in each process, which knows its rank and nothing else."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ...protocol.burst import Process
from ..record import Record


def processes(record: Record, request: dict[str, Any], folder: Path) -> list[Process]:
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    made = []
    for rank in range(record.ranks):
        gpus, together = apart(record, rank // record.procs)
        place = {"RANK": rank, "WORLD_SIZE": record.ranks, "LOCAL_RANK": rank % together, "LOCAL_WORLD_SIZE": together}
        env = {**{name: str(value) for name, value in place.items()}, **meeting}
        argv = [*python(request), "-m", "gateway.pod.burst.worker"]
        made.append(Process(argv=argv, env=env, name=f"rank {rank}", number=rank, gpus=gpus))
    return made


def apart(record: Record, worker: int) -> tuple[list[str] | None, int]:
    """UUIDs of the GPUs that this worker sees, None: all; and how many ranks count as being on its machine.

    Workers of several processes each are as machines of their own, which they are in a cluster. Those of one are as one machine, which
    they are here.
    """
    return (None, record.workers) if record.procs == 1 else (record.gpus_of(worker), record.procs)


def python(request: dict[str, Any]) -> list[str]:
    """The kernel's own interpreter; a file of the user's that is named like a module must not come first, where that can be said."""
    return [str(request["python"]), *(["-P"] if tuple(request.get("version") or ())[:2] >= (3, 11) else [])]


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones."""
    with ExitStack() as until_all_are_known:
        free = [until_all_are_known.enter_context(socket.socket()) for _ in range(count)]
        for each in free:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in free]
