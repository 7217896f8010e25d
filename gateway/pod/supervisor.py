"""The parent of one kernel, on a laptop as in a pod: gates its cells, keeps the truth about it, buffers what nobody hears yet.

``python -m gateway.pod.supervisor DIR [FD]`` reads ``DIR/spec.json``, starts the kernel before anything else, binds its sockets,
writes ``DIR/supervisor.json`` and says so on FD. It must never block, never talk to a cluster, and never outlive its owner.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Optional

from ..protocol.errors import cause
from ..protocol.model import Spec
from .process import KernelProcess

log = logging.getLogger("supervisor")


def main(argv: list[str]) -> int:
    """Run until the kernel is ended for good. 0: a clean end, 1: the kernel could not be started."""
    folder = Path(argv[1])
    report = int(argv[2]) if len(argv) > 2 else None
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    spec_file = folder / "spec.json"
    spec = Spec.from_json(json.loads(spec_file.read_text()))
    spec_file.unlink()  # it holds the request's environment
    try:
        # 1. the kernel boots while we import and bind
        process = KernelProcess(folder, spec)
        process.start()
        # 2. only now what takes time
        from .proxy import Proxy

        proxy = Proxy(folder, spec, process)
        proxy.announce()
    except Exception as exc:
        log.exception("could not start")
        _say(report, f"failed: {cause(exc, folder) if isinstance(exc, OSError) else exc}\n")
        return 1
    _say(report, "ready\n")
    proxy.run()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _say(report: Optional[int], text: str) -> None:
    if report is not None:
        try:
            os.write(report, text.encode())
            os.close(report)
        except OSError:
            pass  # whoever waited is gone


if __name__ == "__main__":
    sys.exit(main(sys.argv))
