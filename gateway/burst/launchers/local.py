"""Bursts as processes of this machine: a detached agent for each, in the burst's folder.

An agent outlives the gateway that started it and ends by itself. What the agent is told goes by file, never by argument or environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ...backends.local import supervisor_env
from ...backends.processes import started
from ...protocol import burst
from ...protocol.burst import Plan, Size

_known: dict[int, subprocess.Popen[bytes]] = {}  # agents that are this process's children, to be reaped


def start(folder: Path, plan: Plan) -> None:
    """Returns at once; what becomes of it stands in the journal. Raises ``OSError``."""
    burst.write_json(folder / burst.PLAN, plan.to_json())
    with open(os.open(folder / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gateway.pod.burst.agent", str(folder)], cwd="/", env=supervisor_env(),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    _known[process.pid] = process
    burst.write_json(folder / burst.AGENT, {"pid": process.pid, "started": started(process.pid)})


def order(folder: Path, size: Size) -> None:
    """Tell its agent of another size. Raises ``OSError``."""
    burst.write_json(folder / burst.SIZE, size.to_json())


def alive(folder: Path) -> bool:
    """Whether its agent runs."""
    return _agent(folder) is not None


def cancel(folder: Path) -> None:
    """Ask its agent to end everything. No error where it has ended."""
    pid = _agent(folder)
    if pid is not None:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass


def _agent(folder: Path) -> int | None:
    try:
        known = burst.read_json(folder / burst.AGENT)
        pid, since = int(known["pid"]), int(known["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    ours = _known.get(pid)
    if ours is not None and ours.poll() is not None:
        del _known[pid]
        return None
    return pid if started(pid) == since else None
