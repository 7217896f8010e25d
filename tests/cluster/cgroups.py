"""A node's control groups: one folder of the node's name in each hierarchy of the machine, made for the kubelet and removed afterwards.

Never touches a group that doesn't carry the node's name.
"""

from __future__ import annotations

import os
import time
from pathlib import Path


def hierarchies() -> list[Path]:
    """The mounts under which a node may have groups: those of v1, and the one of v2, which machines may have beside them."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(where) for _, where, kind, *_ in lines if kind in ("cgroup", "cgroup2")]


def make(name: str) -> None:
    roots = hierarchies()
    first = [root for root in roots if not _is_second(root)]
    for root in first or roots:
        group = root / name
        if _is_second(root):
            wanted = (root / "cgroup.controllers").read_text().split()
            (root / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in wanted))
        group.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # v1 starts them empty, and then no process may join
            if not _is_second(root) and (root / file).exists() and not (group / file).read_text().strip():
                (group / file).write_text((root / file).read_text())


def _is_second(root: Path) -> bool:
    return (root / "cgroup.controllers").exists()


def remove(name: str, seconds: float = 20) -> None:
    """Removes the groups once what ran in them is gone."""
    deadline = time.monotonic() + seconds
    for root in hierarchies():
        while (root / name).exists():
            for folder, _, _ in os.walk(root / name, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    continue
            if time.monotonic() > deadline:
                raise TimeoutError(f"{root / name} can't be removed: something still runs in it; see its files cgroup.procs")
            time.sleep(0.02)
