"""Engine ``dask``: a scheduler and so many workers of Dask's own, and one rank whose cell says ``Client()``.

All speak TLS with keys made for this burst, since Dask runs whatever it is sent and other users of the machine can reach its ports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...protocol.burst import Process
from ..record import Record
from .spmd import free_port, python

READY = "dask.ready"  # a file: all workers are there, and the keys


def processes(record: Record, request: dict[str, Any], folder: Path) -> list[Process]:
    port, tls = free_port(), "DASK_DISTRIBUTED__COMM__TLS__"
    client = {
        "DASK_SCHEDULER_ADDRESS": f"tls://127.0.0.1:{port}",
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
        f"{tls}CA_FILE": str(folder / "dask.ca"),
        f"{tls}CLIENT__CERT": str(folder / "dask.cert"),
        f"{tls}CLIENT__KEY": str(folder / "dask.key"),
    }
    cluster = [*python(request), "-m", "gateway.pod.burst.dask_cluster", str(folder), READY, str(port), str(record.workers)]
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", **client}
    return [
        Process(argv=cluster, name="the Dask cluster", ranks=0),
        Process(argv=[*python(request), "-m", "gateway.pod.burst.worker"], env=rank, name="rank 0", after=READY),
    ]
