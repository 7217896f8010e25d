"""Engine ``torch``: torch elastic's own launcher, ``torchrun``, in its static form: one rendezvous, no restart.

A rank that fails is told by our agent within a moment; torchrun's own look at its workers comes later and says less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...protocol.burst import Process
from ..record import Record
from .spmd import python


def processes(record: Record, request: dict[str, Any], folder: Path) -> list[Process]:
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={record.workers}", "--max-restarts=0"]
    argv = [*python(request), "-m", *launcher, "--no-python", *python(request), "-m", "gateway.pod.burst.worker"]
    return [Process(argv=argv, env={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}, name="torchrun", ranks=record.workers)]
