"""Engine ``torch``: torch elastic's own launcher, ``torchrun``, in its static form: one rendezvous, no restart.

A rank that fails is told by our agent within a moment; torchrun's own look at its workers comes later and says less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...protocol.burst import Process
from ..record import Record
from .spmd import apart, free_port, python


def processes(record: Record, request: dict[str, Any], folder: Path) -> list[Process]:
    if record.procs == 1:
        return [torchrun(request, "torchrun", ["--standalone"], record.workers)]
    port, made = free_port(), []
    for worker in range(record.workers):
        gpus, together = apart(record, worker)
        where = nodes(record, worker, "127.0.0.1", port)
        made.append(torchrun(request, f"torchrun of worker {worker}", where, together, number=worker * together, gpus=gpus))
    return made


def nodes(record: Record, worker: int, address: str, port: int) -> list[str]:
    """How torchrun of this worker meets the others'. ``address``: of the first."""
    return [
        f"--nnodes={record.workers}", f"--node-rank={worker}", f"--master-addr={address}", f"--master-port={port}",
        f"--rdzv-id={record.id}",
    ]  # fmt: skip


def torchrun(request: dict[str, Any], name: str, where: list[str], ranks: int, **fields: Any) -> Process:
    launcher = ["torch.distributed.run", *where, f"--nproc-per-node={ranks}", "--max-restarts=0"]
    argv = [*python(request), "-m", *launcher, "--no-python", *python(request), "-m", "gateway.pod.burst.worker"]
    return Process(argv=argv, env={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}, name=name, ranks=ranks, **fields)
