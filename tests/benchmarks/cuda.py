"""What parking costs beside the driver's own time, and how long a kernel's processes take to find: ``python -m tests.benchmarks.cuda``.

On the double's machine, whose latency is known: everything above it is ours.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gateway.pod.processes import family, has_cuda
from tests.doubles.cuda import Op
from tests.pod.cuda_rig import Rig
from tests.pod.test_cuda_processes import GROUPS, TREE


def moves(times: int = 20) -> dict[str, float]:
    """Milliseconds of ours in a park and a resume (median, worst), and each ÷ the driver's time."""
    with pytest.MonkeyPatch.context() as patch:
        rig = Rig(Path(tempfile.mkdtemp(prefix="bench-")), patch, seconds=0.3)
        rig.take()
        kernel = rig.program()
        ours: dict[str, list[tuple[float, float]]] = {"park": [], "resume": []}
        for _ in range(times):
            for name, move in (("park", rig.park), ("resume", rig.resume)):
                made, began = len(rig.node.calls()), time.monotonic()
                assert move(kernel)[0] is None
                wall = time.monotonic() - began
                steps = (Op.LOCK, Op.CHECKPOINT, Op.RESTORE, Op.UNLOCK)
                ours[name].append((wall, sum(call.took for call in rig.node.calls()[made:] if call.op in steps)))
        rig.close()
    found = {}
    for name, pairs in ours.items():
        over = [(wall - driver) * 1e3 for wall, driver in pairs]
        found[f"{name}_over_ms"], found[f"{name}_over_worst_ms"] = statistics.median(over), max(over)
        found[f"{name}_to_driver"] = statistics.median(wall / driver for wall, driver in pairs)
    return found


def discovery(times: int = 50) -> dict[str, float]:
    """Milliseconds to find a tree of 52 processes and look into each."""
    tree = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    assert tree.stdout
    for _ in range(1 + GROUPS * 17):
        tree.stdout.readline()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        assert not [pid for pid, _ in family(tree.pid, "NO=MARK") if has_cuda(pid)]
        took.append((time.perf_counter() - began) * 1e3)
    os.killpg(tree.pid, 9)
    tree.wait()
    return {"discovery_ms": statistics.median(took), "discovery_worst_ms": max(took)}


if __name__ == "__main__":
    for name, value in {**moves(), **discovery()}.items():
        print(f"{name:24} {value:.2f}")
