"""Frameworks too large to come with the tests: each in an environment of its own, made once outside the repository, with a kernel in it."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.machine import REPOSITORY, Machine

CACHE = Path("~/.cache/jupyter-elastic-gateway/frameworks").expanduser()
KERNEL = ("ipykernel>=7.0", "cloudpickle>=3.0")


def python_with(*needs: str) -> str:
    """The interpreter of an environment that has what ``needs`` names, and nothing of ours; a skip where it can't be installed."""
    needs = (*needs, *KERNEL)
    name = hashlib.sha256(" ".join((sys.version, *needs)).encode()).hexdigest()[:16]
    folder = CACHE / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            made = subprocess.run([folder / "bin/pip", "install", "-q", *needs], capture_output=True, text=True, check=False)
            if made.returncode:
                why = made.stderr.strip().rpartition("\n")[2]
                pytest.skip(f"`pip install {needs[0]}` does not work here ({why}): it needs an index that has it for this Python")
            (folder / "made").touch()
    return str(folder / "bin/python")


def kernelspec(machine: Machine, name: str, python: str) -> None:
    """A kernel of that environment; our package comes by PYTHONPATH, alone."""
    ours = machine.root / "ours"
    ours.mkdir(exist_ok=True)
    if not (ours / "gateway").exists():
        (ours / "gateway").symlink_to(REPOSITORY / "gateway")
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=gateway.magics"]
    machine.variant(name, display_name=name, argv=argv, env={"PYTHONPATH": str(ours)})
