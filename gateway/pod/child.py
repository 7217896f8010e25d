"""The kernel process, as its parent sees it: started, signalled, reaped, its last words kept.

It must never decide anything: who asked for an end, and what follows, is the supervisor's business.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Optional

_PR_SET_PDEATHSIG = 1
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Child:
    """One kernel process in a process group of its own. It dies with its parent, whatever the parent dies of."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: str, log: Path, umask: int = -1) -> None:
        """``umask``: of the process, -1 for its parent's. Raises ``OSError`` where the program or the folder isn't there."""
        try:
            die_with_parent = ctypes.CDLL(None).prctl
        except (OSError, AttributeError):  # not Linux: the kernel's own watch on its parent has to do
            die_with_parent = None

        def before_exec() -> None:
            if die_with_parent:
                die_with_parent(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        self._log = log
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600), "wb") as out:
            self._process = subprocess.Popen(
                argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, umask=umask,
                preexec_fn=before_exec,
            )  # fmt: skip
        self.pid = self._process.pid
        self.pidfd: Optional[int] = None  # where the system, or the container's filter of system calls, doesn't have them
        try:
            self.pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        except OSError:
            pass

    def poll(self) -> Optional[int]:
        """The exit code, negative for a signal, or None while it lives."""
        return self._process.poll()

    def signal(self, signum: int, group: bool = True) -> None:
        """Signal the kernel and what it started; no error where it has just ended."""
        if self._process.poll() is not None:
            return
        try:
            os.killpg(self.pid, signum) if group else os.kill(self.pid, signum)
        except (ProcessLookupError, PermissionError):
            pass

    def sweep(self) -> None:
        """After the end: end what it has left running in its group, which could still sit on a GPU."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def reason(self, code: int) -> str:
        """Why it ended, for people: exit code or signal, and its last words."""
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            hint = " (the machine or its memory limit ran out of memory?)" if code == -signal.SIGKILL else ""
            said = f"The kernel was killed by {name}{hint}."
        else:
            said = f"The kernel ended with exit code {code}."
        words = last_words(self._log)
        return f"{said} Its last words:\n{words}" if words else said


def last_words(log: Path, most: int = 2000) -> str:
    """The end of a log file as plain text, at most ``most`` characters."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * most))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return _ANSI.sub("", text).strip()[-most:]


def started(pid: int) -> Optional[int]:
    """When a process was started (clock ticks since boot): with its id, an identity. None where it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])
