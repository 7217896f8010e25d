"""Processes of this machine, as /proc shows them: who is alive, who descends from whom, and how to end them all.

A process id alone is never an identity, as ids are used again: it goes with the time of its start. Nothing here must ever signal
a process without having checked that.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

Identity = tuple[int, int]  # pid, start in clock ticks since boot

_PPID, _STARTED = 1, 19  # fields of /proc/PID/stat after the command's name


def started(pid: int) -> int | None:
    """When ``pid`` was started, None where it has ended (a zombie has)."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[_STARTED])


def now() -> int:
    """In clock ticks since boot, as starts are told."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def descendants(pid: int) -> set[Identity]:
    """``pid`` and all that descends from it, as of now."""
    children: dict[int, list[int]] = {}
    starts: dict[int, int] = {}
    for each in _pids():
        fields = _stat(each)
        if fields is not None and fields[0] != b"Z":
            children.setdefault(int(fields[_PPID]), []).append(each)
            starts[each] = int(fields[_STARTED])
    found: set[Identity] = set()
    todo = [pid]
    while todo:
        each = todo.pop()
        if each in starts:
            found.add((each, starts[each]))
        todo += children.get(each, [])
    return found


def marked(variable: str, value: str) -> set[Identity]:
    """Our processes that were started with ``variable=value`` in their environment: a kernel's, even when its parent has died."""
    return _marked(f"{variable}={value}".encode().__eq__)


def marked_below(variable: str, folder: Path) -> set[Identity]:
    """As ``marked``, where the value is a path in ``folder``."""
    beginning = f"{variable}={folder}/".encode()
    return _marked(lambda entry: entry.startswith(beginning))


def _marked(is_mark: Callable[[bytes], bool]) -> set[Identity]:
    found = set()
    for pid in _pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # another user's, or gone
            continue
        if any(map(is_mark, environment.split(b"\0"))):
            start = started(pid)
            if start is not None:
                found.add((pid, start))
    return found


def send(processes: set[Identity], signum: int) -> set[Identity]:
    """Signal those that still live; returns them."""
    living = {each for each in processes if started(each[0]) == each[1]}
    for pid, _ in living:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue
    return living


def kill_all(processes: set[Identity], patience: float = 5.0) -> None:
    """SIGKILL, each before its children so that none can start another unseen; returns when they have ended (or hang in a driver)."""
    seen: set[Identity] = set()
    while processes:
        living = send(processes, signal.SIGKILL)
        seen |= living
        processes = set().union(*(descendants(pid) for pid, _ in living)) - seen
    end = time.monotonic() + patience
    while any(started(pid) == start for pid, start in seen) and time.monotonic() < end:
        time.sleep(0.01)


def user_of(pid: int) -> int | None:
    """The user id that a process runs as, None where it can't be seen."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[bytes] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return stat[stat.rindex(b")") + 2 :].split()
