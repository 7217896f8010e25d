"""A cluster ends without a trace, also when the run that made it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.backends.processes import descendants, started

from . import cgroups
from .available import clear_what_was_left, obstacle
from .fixtures import unavailable
from .places import Slot
from .processes import Processes

REPOSITORY = Path(__file__).parents[2]
KILLED = """
import os, signal
from tests.cluster.available import own_cluster
from tests.cluster.test_the_cluster import pod, wait

with own_cluster() as cluster:
    cluster.apply(pod("left", "sleep", "600"))
    wait(cluster, "default", "pod/left", "condition=Ready")
    print(cluster.slot.number, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def traces(slot: Slot) -> set[str]:
    """All that a cluster in this slot is seen by on the machine."""
    found = {line for line in Path("/proc/self/mounts").read_text().splitlines() if str(slot.folder) in line or slot.name in line}
    found |= {str(path) for root in cgroups.hierarchies() for path in root.glob(f"{slot.name}-*")}
    found |= {str(path) for path in Path("/sys/class/net").glob(slot.name)}
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout.splitlines()
    found |= {route for route in routes if slot.name in route}
    return found | ({str(slot.folder)} if slot.folder.exists() else set())


def firewall() -> list[str]:
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout.splitlines()
    return [rule for rule in rules if not rule.startswith((":", "#"))]


@pytest.mark.cluster
def test_what_a_killed_run_leaves_is_cleared_by_the_next_without_a_trace():
    if (reason := obstacle()) is not None:
        unavailable(reason)
    rules = firewall()
    run = subprocess.run([sys.executable, "-c", KILLED], cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    slot = Slot(int(run.stdout))
    records = Processes(slot.folder / "processes")
    alive = {each for name in records.names() if (pid := records.pid(name)) for each in descendants(pid)}
    assert len(alive) > 15 and len(traces(slot)) > 5
    assert any("sleep" in Path(f"/proc/{pid}/comm").read_text() for pid, _ in alive), "the pod went on"

    clear_what_was_left()
    assert traces(slot) == set()
    assert [pid for pid, when in alive if started(pid) == when] == []
    assert firewall() == rules
