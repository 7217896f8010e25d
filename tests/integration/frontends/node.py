"""Packages of npm for the tests: put once into a folder outside the repository, in the versions named here."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path("~/.cache/jupyter-elastic-gateway/node").expanduser()


def packages(**versions: str) -> Path:
    """A folder whose ``node_modules`` holds them; a skip where there is no Node.js."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node.js is not installed: apt-get install nodejs npm")
    wanted = {name.replace("__", "/").replace("_", "-"): version for name, version in versions.items()}
    wanted = {f"@{name}" if "/" in name else name: version for name, version in wanted.items()}
    folder = CACHE / hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": wanted}))
            subprocess.run([npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], cwd=folder, check=True)
            (folder / "made").touch()
    return folder
