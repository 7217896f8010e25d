"""A real, unmodified Enterprise Gateway in an environment of its own, and its source as it was released, with the kernelspecs and documents
that its wheel leaves out: made once, outside the repository, as its pins exclude ours."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VERSION = "3.3.0"
NEEDS = (f"jupyter_enterprise_gateway=={VERSION}",)
PYTHONS = ("python3.11", "python3.10", "python3.9")  # it needs distutils, which later ones don't have
CACHE = Path("~/.cache/jupyter-elastic-gateway").expanduser()
OURS = Path(__file__).parents[2] / "gateway"


def enterprise_python() -> Path:
    """The interpreter that has Enterprise Gateway, and nothing of ours; a skip where there can't be one."""
    base = next(filter(None, map(shutil.which, PYTHONS)), None)
    if base is None:
        pytest.skip(f"Enterprise Gateway {VERSION} runs on Python 3.11 at most: install one of {', '.join(PYTHONS)}")
    name = hashlib.sha256(" ".join((base, *NEEDS)).encode()).hexdigest()[:16]
    folder = CACHE / "enterprise" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([base, "-m", "venv", str(folder)], check=True)
            subprocess.run([str(folder / "bin/pip"), "install", "-q", *NEEDS], check=True)
            (folder / "made").touch()
    return folder / "bin/python"


def enterprise_source() -> Path:
    """The source that it was released as; a skip where it can't be had."""
    folder = CACHE / "enterprise" / f"source-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            fetch = ["download", "-q", "--no-deps", "--no-build-isolation", "--no-binary=:all:", f"--dest={folder}"]
            done = subprocess.run([sys.executable, "-m", "pip", *fetch, *NEEDS], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"the source of Enterprise Gateway can't be had (`pip download` needs the network once): {done.stderr[-300:]}")
            shutil.unpack_archive(next(folder.glob("*.tar.gz")), folder, filter="data")
            (folder / "made").touch()
    return next(folder.glob("*/"))


def ours_alone(root: Path) -> Path:
    """A folder for ``PYTHONPATH`` that holds our package as ``pip install --no-deps --target`` would lay it."""
    (root / "ours").mkdir()
    (root / "ours" / "gateway").symlink_to(OURS)
    return root / "ours"
