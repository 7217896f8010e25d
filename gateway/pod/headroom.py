"""How much host memory parked GPU state may take: what the kernel's memory limits and the machine have left. And whether a limit has
killed something.

The copy of a parked state is the kernel process's own memory, so it counts against every limit above that process. A kernel that
went over one would be killed in the middle of parking: where nothing is known, this must never guess high.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Optional


def host_headroom(pid: int = 0, root: Path = Path("/")) -> int:
    """Bytes that ``pid`` (0: this process) may still take. ``root``: where /proc and /sys are."""
    left = [room for room in _limits(root, str(pid or "self")) if room is not None]
    available = _number(_field(root / "proc/meminfo", "MemAvailable:"))
    if available is not None:
        left.append(available * 1024)
    return max(0, min(left)) if left else 0


def killed_for_memory(pid: int = 0, root: Path = Path("/")) -> dict[Path, int]:
    """How often something in each of ``pid``'s groups has been killed, because it wanted more memory than that may have."""
    found = {}
    for group in _groups(root, str(pid or "self")):
        count = _number(_field(group / "memory.events", "oom_kill") or _field(group / "memory.oom_control", "oom_kill"))
        if count is not None:
            found[group] = count
    return found


def limit(group: Path) -> Optional[int]:
    """Bytes that processes of a group may have; None: no limit of its own."""
    return _number(_first(group / "memory.max") or _first(group / "memory.limit_in_bytes"))


def _limits(root: Path, pid: str) -> Iterator[Optional[int]]:
    """What each limit leaves."""
    return map(_left, _groups(root, pid))


def _groups(root: Path, pid: str) -> Iterator[Path]:
    """From the process's own group up to the top; in a container the top is its own."""
    for line in _lines(root / "proc" / pid / "cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield base.joinpath(*parts[:depth])


def _left(group: Path) -> Optional[int]:
    """Of one group: its limit less what it uses, but for file pages that would make room. None: no limit there."""
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, now = _number(_first(group / limit)), _number(_first(group / used))
        if most is not None and now is not None:
            return most - now + (_number(_field(group / "memory.stat", cache)) or 0)
    return None


def _first(path: Path) -> str:
    return next(iter(_lines(path)), "")


def _field(path: Path, name: str) -> str:
    return next((line.split()[1] for line in _lines(path) if line.split()[:1] == [name]), "")


def _number(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
