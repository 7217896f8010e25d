"""The parent of one kernel, on a laptop as in a pod: gates its cells, keeps the truth about it, buffers what nobody hears yet.

``python -m gateway.pod.supervisor DIR [FD] [--spec FILE]`` reads ``DIR/spec.json``, starts the kernel before anything else, binds its
sockets, writes ``DIR/supervisor.json`` and says so on FD, which it closes once the kernel answers or has ended. With ``--spec``, as in
a pod, the spec is read from FILE, which stays, and all else lies in ``DIR/run``, made anew. It must never block, never talk to a
cluster, and never outlive its owner.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Optional

from ..protocol.errors import cause
from ..protocol.model import Spec
from .process import KernelProcess

log = logging.getLogger("supervisor")


def main(argv: list[str]) -> int:
    """Run until the kernel is ended for good. 0: a clean end, 1: the kernel could not be started."""
    at = argv.index("--spec") if "--spec" in argv else len(argv)
    file = Path(argv[at + 1]) if at < len(argv) else None
    folder, report = Path(argv[1]), int(argv[2]) if at > 2 else None
    umask = os.umask(0o077)  # for our files; those of the user are as whoever started us has them
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if os.getpid() == 1:  # which no signal ends that isn't handled
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        # 0. what to do
        if file is None:
            spec = _read(folder / "spec.json")
            (folder / "spec.json").unlink()  # it holds the request's environment
        else:
            folder, spec = _anew(folder / "run"), _read(file)
        # 1. the kernel boots while we import and bind
        process = KernelProcess(folder, spec, umask)
        process.on_up = lambda: _close(report)
        process.start()
        # 2. only now what takes time
        from .proxy import Proxy

        proxy = Proxy(folder, spec, process)
        proxy.announce()
    except Exception as exc:
        of_the_machine = isinstance(exc, OSError)  # such as a program that isn't there: nobody needs to see where we were
        why = cause(exc, folder) if of_the_machine else str(exc)
        log.error("could not start: %s", why, exc_info=not of_the_machine)
        _say(report, f"failed: {why}\n")
        _close(report)
        return 1
    _say(report, "ready\n")
    proxy.run()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _read(file: Path) -> Spec:
    spec: Spec = Spec.from_json(json.loads(file.read_text()))
    return spec


def _anew(folder: Path) -> Path:
    """A folder for this user alone, whatever an earlier container of the pod has left there."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)  # without the group bits that a volume may hand down
    return folder


def _say(report: Optional[int], text: str) -> None:
    if report is not None:
        try:
            os.write(report, text.encode())
        except OSError:
            pass  # whoever waited is gone


def _close(report: Optional[int]) -> None:
    if report is not None:
        try:
            os.close(report)
        except OSError:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv))
