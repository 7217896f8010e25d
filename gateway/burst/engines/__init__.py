"""Which processes a burst is made of: one module an engine, each with ``processes(record, request, folder)``. Pure but for a free port.

An engine is what people have anyway (torchrun, mpirun, ...); nothing here must ever ask a cell to import something of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...protocol.burst import Process
from ...protocol.errors import BadRequest
from ..record import Record
from . import dask, mpi, ray, spmd, tf_ps, torch

Engine = Callable[[Record, dict[str, Any], Path], list[Process]]

ENGINES: dict[str, Engine] = {
    "none": spmd.processes,
    "torch": torch.processes,
    "mpi": mpi.processes,
    "dask": dask.processes,
    "ray": ray.processes,
    "tf-ps": tf_ps.processes,
}
ELASTIC = ("none", "torch", "mpi")  # whose workers may be replaced by more or fewer that go on from their last commit
OPEN = ("tf-ps",)  # whose own servers run what anybody sends them who can reach the machine


def engine(name: Any) -> Engine:
    """Raises ``BadRequest`` that names those that are there."""
    found = ENGINES.get(name) if isinstance(name, str) else None
    if found is None:
        raise BadRequest(f"There is no engine {str(name)[:40]!r}: the engines are {', '.join(ENGINES)}.")
    return found
