"""Engine ``ray``: a Ray cluster of its own, with a CPU and as many GPUs as were asked for for each worker, and one rank whose cell says
``ray.init()``.

Ray runs whatever it is sent, so all of it listens on the loopback address alone and asks for a token made for this burst.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...protocol.burst import Process
from ..record import Record
from .spmd import free_ports, python

READY = "ray.ready"  # a file: all workers are there, and the token


def processes(record: Record, request: dict[str, Any], folder: Path) -> list[Process]:
    port, client_port = free_ports(2)
    shared = {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "ray.token"),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # so it listens on 127.0.0.1, as it does there
    }  # fmt: skip
    head = ["head", "127.0.0.1", str(port), str(record.workers), str(record.workers * record.gpus), str(client_port), "1", READY]
    cluster = [*python(request), "-m", "gateway.pod.burst.ray_cluster", str(folder), *head]
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "RAY_ADDRESS": f"127.0.0.1:{port}", **shared}
    return [
        Process(argv=cluster, env=shared, name="the Ray cluster", ranks=0),
        Process(argv=[*python(request), "-m", "gateway.pod.burst.worker"], env=rank, name="rank 0", after=READY),
    ]
