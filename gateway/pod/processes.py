"""The processes of a kernel that could have CUDA state, as /proc shows them.

A process id alone is never an identity, as ids are used again: it goes with the time of its start. Threads are never taken for
processes: the driver accepts their ids and then acts on whoever has them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Optional

Identity = tuple[int, int]  # pid, start in clock ticks since boot

SETTLED = 2.0  # seconds after which a process is surely in its own program, and no longer in that of the one that has started it

_STATE, _PPID, _SESSION, _THREADS, _STARTED = 0, 1, 3, 17, 19  # fields of /proc/PID/stat after the command's name


def alive(identity: Identity) -> bool:
    """Whether this very process runs; a zombie doesn't."""
    fields = _stat(identity[0])
    return fields is not None and not _over(fields) and int(fields[_STARTED]) == identity[1]


def family(root: int, mark: str) -> list[Identity]:
    """``root``, all that descends from it or is of its session, and whatever was started with ``mark`` ("NAME=value") in its
    environment: a kernel's processes, even those that have turned their back on it. Parents first. Not those with another mark of that
    name: a kernel that was started from this one has a lease of its own."""
    name, _, value = mark.encode().partition(b"=")
    children: dict[int, list[int]] = {}
    starts: dict[int, int] = {}
    session = []
    for pid in _pids():
        fields = _stat(pid)
        if fields is None or _over(fields):
            continue
        starts[pid] = int(fields[_STARTED])
        children.setdefault(int(fields[_PPID]), []).append(pid)
        if int(fields[_SESSION]) == root:
            session.append(pid)
    found: dict[int, None] = {}

    def bears(pid: int) -> Optional[bytes]:
        return _bears((pid, starts[pid]), name) if name else None

    def add(todo: list[int]) -> None:
        while todo:
            pid = todo.pop()
            if pid not in found and pid in starts and (pid == root or bears(pid) in (None, value)):
                found[pid] = None
                todo += children.get(pid, ())

    add([*reversed(session), root])
    add([pid for pid in starts if pid not in found and bears(pid) == value])
    return [(pid, starts[pid]) for pid in found]


def has_cuda(pid: int) -> bool:
    """Whether the driver's library is mapped there; False also where one may not look: such a process can't be parked anyway."""
    return b"libcuda.so" in _read(pid, "maps")


def ending(pid: int) -> bool:
    """Whether it is being taken down: it has let go of its memory, and nothing tells any more what it has had on a GPU."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return not file.read(1)
    except ProcessLookupError:
        return True
    except OSError:
        return False


def kill(identity: Identity) -> None:
    """SIGKILL; no error where it has just ended."""
    if alive(identity):
        try:
            os.kill(identity[0], signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def children(parent: int) -> list[int]:
    """Those that run."""
    found = ((pid, _stat(pid)) for pid in _pids())
    return [pid for pid, fields in found if fields is not None and not _over(fields) and int(fields[_PPID]) == parent]


def zombies(parent: int) -> list[int]:
    """Children of ``parent`` that have ended and of whose end nobody has taken note."""
    found = []
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None and fields[_STATE] == b"Z" and int(fields[_PPID]) == parent:
            found.append(pid)
    return found


def on_host() -> bool:
    """Whether process ids here are the host's, as the driver's are: only there is the kernel's own thread daemon to be seen."""
    return _read(2, "comm") == b"kthreadd\n"


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _bears(identity: Identity, name: bytes) -> Optional[bytes]:
    """The value of a variable in the environment that a process was started with; None: it has no such."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - identity[1] / _ticks()
    return _bears_for_good(identity, name) if age > SETTLED else _variable(identity, name)


@lru_cache(maxsize=1)
def _ticks() -> int:
    """Of a second."""
    return os.sysconf("SC_CLK_TCK")


def _variable(identity: Identity, name: bytes) -> Optional[bytes]:
    for line in _read(identity[0], "environ").split(b"\0"):
        if line.startswith(name + b"="):
            return line[len(name) + 1 :]
    return None


_bears_for_good = lru_cache(maxsize=1 << 14)(_variable)  # it doesn't change, and on a large machine most processes are others'


def _stat(pid: int) -> Optional[list[bytes]]:
    stat = _read(pid, "stat")
    return stat[stat.rindex(b")") + 2 :].split() if stat else None


def _over(fields: list[bytes]) -> bool:
    """It has ended. One whose first thread has is a zombie by its state, and keeps its memory until the last of the others is gone."""
    return fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) <= 1


def _read(pid: int, name: str) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)  # all processes of the machine are read, so what a file object costs counts
    except OSError:
        return b""
    try:
        chunks = []
        while chunk := os.read(fd, 1 << 16):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError:
        return b""
    finally:
        os.close(fd)
