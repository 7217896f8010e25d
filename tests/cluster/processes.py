"""The processes of a cluster, recorded so that a later run can end them: each record holds a pid and when that process started.

Never ends a process that isn't recorded: a pid alone may belong to somebody else by now.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from gateway.backends.processes import started

# The child records itself before it becomes the program, so that no process exists without its record.
_RECORD = 'cut -d" " -f1,22 /proc/$$/stat > "$0.new" && mv "$0.new" "$0" && exec "$@"'


class Processes:
    """The records of one slot, in ``folder``; also usable by a process that didn't start them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, command: Sequence[str], *, log: Path | None = None, env: dict[str, str] | None = None) -> int:
        """Starts ``command`` in a session of its own and returns its pid; its output goes to ``log``, or nowhere."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = self.folder / name
        record.unlink(missing_ok=True)
        with open(log or os.devnull, "ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _RECORD, str(record), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                env=env,
            )
        self._children.append(child)
        while not record.exists():
            if child.poll() is not None:
                raise RuntimeError(f"{name} could not be started: {record} could not be written")
            time.sleep(0.005)
        return child.pid

    def pid(self, name: str) -> int | None:
        """The pid of a recorded process that still runs."""
        try:
            pid, when = map(int, (self.folder / name).read_text().split())
        except (OSError, ValueError):
            return None
        return pid if started(pid) == when else None

    def names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.folder.iterdir())
        except OSError:
            return []

    def end(self, *names: str) -> None:
        """Kills these and waits until they are gone: nothing here has anything to save."""
        pids = {name: pid for name in names if (pid := self.pid(name)) is not None}
        for pid in pids.values():
            _signal(pid)
        deadline = time.monotonic() + 20
        for name, pid in pids.items():
            while self.pid(name) is not None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"process {pid} ({name}) doesn't end although it was killed; see /proc/{pid}/stack")
                time.sleep(0.01)
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
        self._children = [child for child in self._children if child.poll() is None]


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
