"""A Dask cluster for one burst: ``python -m gateway.pod.burst.dask_cluster FOLDER READY PORT WORKERS``, until it is told to end.

It makes the keys that all of it needs to speak with one another, and leaves those of the client in the burst's private folder, then the
file READY. It must never listen without them.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from pathlib import Path


def main(argv: list[str]) -> int:
    folder, ready, port, workers = Path(argv[1]), argv[2], int(argv[3]), int(argv[4])
    distributed = importlib.import_module("distributed")  # the user's own, of whatever version
    security = distributed.Security.temporary()  # needs the package cryptography, and says so
    ended = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: ended.set())
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, security=security, host="127.0.0.1", scheduler_port=port, dashboard_address=None
    ):
        for name, text in (("ca", security.tls_ca_file), ("cert", security.tls_client_cert), ("key", security.tls_client_key)):
            fd = os.open(
                folder / f"dask.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            )  # whatever the umask: workers have the user's
            with open(fd, "w") as file:
                file.write(text)
        (folder / ready).touch()
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
