"""How the Python of this supervisor's kernel is run, so that it can be run alike elsewhere, without asking the kernel.

It knows what the kernel was started with, and must never tell what has become of that since: only the kernel itself knows.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from ..protocol.errors import ElasticError
from ..protocol.model import Spec
from .child import started
from .process import KernelProcess

_NAME = re.compile(r"python[0-9.]*")
_PACKAGES = str(Path(__file__).parents[2])  # where `gateway` is imported from


def as_started(spec: Spec, process: KernelProcess, version: str) -> dict[str, Any]:
    """Interpreter, version, environment, folder and process of the kernel. ``version``: as it has said, "" where it hasn't yet. Raises
    ``ElasticError`` where it has no process or is no Python that is started as such."""
    env, first = process.environment, spec.argv[0]
    if spec.language != "python" or not _NAME.fullmatch(Path(first).name):
        raise ElasticError(
            f"This kernel is not started as a Python ({Path(first).name}), so nobody but itself knows how its cells could run elsewhere. "
            "In a Python kernel, use %%distributed.",
            reason="not_python",
        )
    pid = process.child.pid if process.child is not None else None
    since = None if pid is None else started(pid)
    if since is None:
        raise ElasticError("The kernel's process has ended: restart the kernel, and ask again.", reason="pending")
    return {
        "python": shutil.which(first, path=env.get("PATH")) or first, "version": [int(part) for part in re.findall(r"\d+", version)[:3]],
        "packages": _PACKAGES, "cwd": process.folder_of_work, "env": env, "pid": pid, "started": since,
    }  # fmt: skip
