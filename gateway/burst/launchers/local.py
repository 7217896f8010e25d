"""Bursts as processes of this machine: a detached agent for each, in the burst's folder.

An agent outlives the gateway that started it and ends by itself. What the agent is told goes by file, never by argument or environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...backends.base import Supervisor
from ...backends.local import supervisor_env
from ...backends.processes import kill_all, marked_below, started
from ...protocol import burst
from ...protocol.burst import Plan, Size
from ...protocol.errors import BadRequest
from ...settings import Bursts as Settings
from ..engines import OPEN
from ..plan import checked_request, make_plan, make_size
from ..record import Folder, Record

_known: dict[int, subprocess.Popen[bytes]] = {}  # agents that are this process's children, to be reaped


class Local:
    """``lock_dir``: where this machine's GPUs are locked while somebody is on them."""

    elastic = leases = True

    def __init__(self, folder: Callable[[Record], Folder], settings: Settings, lock_dir: Callable[[], str | None]) -> None:
        self._folder, self._settings, self._lock_dir = folder, settings, lock_dir

    def prepare(self, record: Record, supervisor: Supervisor) -> None:
        if record.launcher not in ("auto", "local"):
            raise BadRequest(f"Workers are processes of one machine here; -l {record.launcher} is for a cluster: leave it out.")
        if record.queue:
            raise BadRequest("Workers are processes of one machine here, and that has no queue of a cluster: leave --queue out.")
        if record.on_demand:
            raise BadRequest("Workers are processes of one machine here, and there are no nodes to choose from: leave --on-demand out.")
        if record.image:
            raise BadRequest("Workers are processes of one machine here, and run what is installed on it: leave --image out.")
        if record.most * record.procs > self._settings.most_workers:
            many = record.most * record.procs
            raise BadRequest(f"{many} processes are too many: at most {self._settings.most_workers} on this machine (Bursts.most_workers).")
        if record.engine in OPEN and not self._settings.trusted_network:
            raise BadRequest(
                f"The servers of -e {record.engine} listen on all addresses of this machine, and run what anybody sends them. Where "
                "everybody who can reach it is trusted, start the gateway with Bursts.trusted_network=True."
            )

    def usable(self, supervisor: Supervisor, gpus: int) -> int:
        return gpus

    def access(self, record: Record) -> dict[str, Any]:
        return {"folder": str(self._folder(record).path)}

    def launch(self, record: Record) -> None:
        folder = self._folder(record)
        request = checked_request(folder.request())
        if any(role.get(key) for role in record.roles for key in ("image", "cpu", "memory")):
            folder.note({"t": burst.NOTE, "at": time.time(), "text": "On one machine roles have no image, cpu and memory of their own."})
        start(folder.path, make_plan(record, request, folder.path, self._settings.journal_bytes, self._lock_dir()))

    def order(self, record: Record, why: str) -> None:
        folder = self._folder(record)
        order(folder.path, make_size(record, checked_request(folder.request()), folder.path, why))

    def alive(self, record: Record) -> bool:
        return alive(self._folder(record).path)

    def asked_still(self, record: Record) -> bool:
        request = self._folder(record).request()
        return started(request["pid"]) == request["started"]

    def cancel(self, record: Record) -> None:
        cancel(self._folder(record).path)

    def look(self, record: Record) -> None:
        pass  # its agent looks after it

    def ended(self, record: Record) -> None:
        if record.outcome == burst.LOST:  # its workers died with their agent; what they have started didn't, and may be on a GPU
            kill_all(marked_below(burst.SOCKET_VARIABLE, self._folder(record).path), patience=1.0)

    def preview(self, record: Record, supervisor: Supervisor) -> list[dict[str, Any]]:
        self.prepare(record, supervisor)
        return []

    def manifests(self, record: Record) -> list[dict[str, Any]]:
        raise BadRequest(f"The workers of {record.name} are processes of one machine: there are no manifests.")

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass


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
