"""The watchdog's eyes: whether what runs in a kernel makes progress, or hangs in a call to a GPU whose state is parked.

A call into parked CUDA state blocks without using the processor, and without any interrupt. So does ``time.sleep``, which is no reason
to ask for a GPU: what tells them apart is the system call that the main thread waits in. Linux alone; where ``/proc`` doesn't tell, no
processor time at all counts as a hang, because a lease too many does less harm than a cell that never ends.

It must never sleep, signal or change anything: the caller samples, as often as it likes.
"""

from __future__ import annotations

import os
import platform
import re
from typing import NamedTuple, Optional

# Numbers of the system calls in which a program waits because it wants to: sleeping, or for files, sockets, terminals and children.
_RESTING = {
    "x86_64": {
        "nanosleep": 35, "clock_nanosleep": 230, "poll": 7, "ppoll": 271, "select": 23, "pselect6": 270, "epoll_wait": 232,
        "epoll_pwait": 281, "epoll_pwait2": 441, "pause": 34, "accept": 43, "accept4": 288, "recvfrom": 45, "recvmsg": 47, "connect": 42,
        "wait4": 61, "waitid": 247, "rt_sigtimedwait": 128, "flock": 73,
    },
    "aarch64": {
        "nanosleep": 101, "clock_nanosleep": 115, "ppoll": 73, "pselect6": 72, "epoll_pwait": 22, "epoll_pwait2": 441, "accept": 202,
        "accept4": 242, "recvfrom": 207, "recvmsg": 212, "connect": 203, "wait4": 260, "waitid": 95, "rt_sigtimedwait": 137, "flock": 32,
    },
}  # fmt: skip
_READ = {"x86_64": 0, "aarch64": 63}
# The same by the kernel's name for where a thread waits, for other machines and where the call is kept from us.
_RESTING_AT = re.compile(
    "nanosleep|poll|select|ep_wait|wait_woken|tty_read|pipe_read|pipe_wait|do_wait|skb_wait|unix_stream|inet_csk_accept|sk_wait|sigtimedwait"
)
_WAITABLE = ("socket:", "pipe:", "/dev/pts/", "/dev/tty", "anon_inode:")

PROC = "/proc"
QUIET = 0.01  # of a second in a second: what a kernel's threads use while it does nothing


class Sample(NamedTuple):
    """One look at a kernel: processor time of its whole process tree, in seconds, and whether its main thread waits on purpose.

    ``resting`` is None where the machine doesn't tell; ``processor`` is None where the process is gone.
    """

    processor: Optional[float]
    resting: Optional[bool]


def progress(pid: int) -> Sample:
    """Look at the process ``pid`` and all its descendants. Never raises: a process that is gone has no processor time."""
    own = _processor(pid)
    if own is None:
        return Sample(None, None)
    total = own + sum(_processor(child) or 0.0 for child in _descendants(pid))
    return Sample(total, _resting(pid))


class Stalled:
    """Fed with samples while a request is in flight and the state is parked; tells when it has hung for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.clear()

    def clear(self) -> None:
        """Nothing is in flight, or nothing is parked."""
        self._since: Optional[float] = None
        self._processor = 0.0

    def feed(self, sample: Sample, now: float) -> bool:
        """True once nothing has moved for ``seconds`` up to ``now`` (seconds of any steady clock)."""
        if sample.processor is None or sample.resting:
            self.clear()
            return False
        if self._since is None or self._moved(sample.processor, now - self._since):
            self._since, self._processor = now, sample.processor
            return False
        return now - self._since >= self._seconds

    def _moved(self, processor: float, elapsed: float) -> bool:
        used = processor - self._processor
        return used < 0 or used > max(QUIET, QUIET * elapsed)  # less: a child has ended and took its time with it


def _processor(pid: int) -> Optional[float]:
    """Seconds of processor time of all threads of a process, ended ones and reaped children included."""
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return None
        return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _descendants(pid: int) -> list[int]:
    """Children, their children and so on; none where the kernel doesn't list them."""
    found: list[int] = []
    stack = [pid]
    while stack:
        parent = stack.pop()
        try:
            for thread in os.listdir(f"{PROC}/{parent}/task"):
                with open(f"{PROC}/{parent}/task/{thread}/children", "rb") as file:
                    children = [int(child) for child in file.read().split()]
                found += children
                stack += children
        except (OSError, ValueError):
            continue
    return found


def _resting(pid: int) -> Optional[bool]:
    """Whether the main thread waits in a call that means to wait."""
    machine = platform.machine()
    call = _line(f"{PROC}/{pid}/syscall").split()
    if call and call[0] == "running":
        return False
    if call and machine in _RESTING and call[0].lstrip("-").isdigit():
        number = int(call[0])
        if number == _READ[machine]:
            return _waitable(pid, call[1]) if len(call) > 1 else None
        return number in _RESTING[machine].values()
    place = _line(f"{PROC}/{pid}/wchan")
    if place in ("", "0"):
        return None
    return "futex" not in place and _RESTING_AT.search(place) is not None


def _waitable(pid: int, argument: str) -> Optional[bool]:
    """Whether a descriptor is something that others write to when they please."""
    try:
        return os.readlink(f"{PROC}/{pid}/fd/{int(argument, 16)}").startswith(_WAITABLE)
    except (OSError, ValueError):
        return None


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""
