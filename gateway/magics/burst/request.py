"""How Python runs in this kernel, so that it runs alike in its ranks: interpreter, environment, folder and module path."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ...protocol.burst import SAME, WANTED
from .options import INSTALLED, Options

_PACKAGES = str(Path(__file__).parents[3])  # where `gateway` is imported from


def request(options: Options, installed: list[dict[str, str]]) -> dict[str, Any]:
    """It holds the environment, so it goes into a file of this user alone. ``installed``: what the user has added to the image."""
    return {
        "python": sys.executable, "version": list(sys.version_info[:3]), "packages": _PACKAGES, "cwd": os.getcwd(), "env": dict(os.environ),
        "path": sys.path, "pid": os.getpid(), "started": _started(), "give_back": options.give_back, "out": options.out,
        "init": options.init and options.engine == "torch", "save_every": options.save_every,
        "compress": options.compress, "pip": _pip(options, installed),
    }  # fmt: skip


def _pip(options: Options, installed: list[dict[str, str]]) -> dict[str, list[str]]:
    same = [item["spec"] for item in installed if item["spec"]] if INSTALLED in options.pip else []
    return {SAME: same, WANTED: [each for each in options.pip if each != INSTALLED]}


def _started() -> int:
    """When this process was started (clock ticks since boot): with its id, an identity."""
    stat = Path("/proc/self/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[19])
