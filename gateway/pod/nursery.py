"""Supervisors by fork: a process that has imported once what each of them needs, and that whoever starts many of them keeps beside it.

``python -P -m gateway.pod.nursery FD PADDING`` answers requests on FD, a socket that its owner alone has: ``{"argv": [...], "env": {...}}``
with the descriptors of log and report becomes ``{"pid": n}``, a supervisor in a session of its own as an exec'd one would be;
``{"ended": pid}`` becomes ``{"code": n}``, once. ``PADDING`` is room for a supervisor's own command line, as ``ps`` shows it. It must never
have a second thread or a ZMQ context, never hand a child anything of its own, and never outlive its owner.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Optional

from . import proxy as proxy  # what takes time
from . import supervisor

MAX_REQUEST = 128 << 10
KEPT_CODES = 64  # of supervisors that have ended; their owner asks soon, or never
_ARG_START, _ARG_END = 45, 46  # fields of /proc/PID/stat after the command's name


def main(argv: list[str]) -> int:
    """Until the owner hangs up or has ended; in a child, the child's whole life."""
    line = socket.socket(fileno=int(argv[1]))
    line.set_inheritable(False)
    title = [sys.executable, "-P", "-m", "gateway.pod.nursery", argv[1]]
    if not entitle(title):
        return 1  # others would not know a supervisor for what it is
    gc.collect()
    gc.freeze()  # so that no collection in a child copies what all of them share
    born = _Nursery(line).serve()
    return 0 if born is None else supervisor.main(born)


class _Nursery:
    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._owner = _descriptor(os.getppid())
        self._codes: dict[int, int] = {}
        self._ended, self._signalled = os.pipe()
        os.set_blocking(self._ended, False)
        os.set_blocking(self._signalled, False)

    def serve(self) -> Optional[list[str]]:
        """None at the end; in each child its command."""
        signal.set_wakeup_fd(self._signalled)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        for each in (self._line.fileno(), self._ended, *self._owner):
            poll.register(each, select.POLLIN)
        self._answer({"ready": os.getpid()})
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._ended in ready:
                self._reap()
            if self._line.fileno() in ready:
                data, passed, _, _ = socket.recv_fds(self._line, MAX_REQUEST, 2, socket.MSG_CMSG_CLOEXEC)
                if not data:
                    return None
                born = self._obey(json.loads(data), passed)
                if born is not None:
                    return born
            if ready.intersection(self._owner):
                return None

    def _obey(self, asked: dict[str, Any], passed: list[int]) -> Optional[list[str]]:
        if "ended" in asked:
            self._reap()
            self._answer({"code": self._codes.pop(asked["ended"], None)})
            return None
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError as exc:
            self._answer({"failed": exc.errno})
            pid = -1
        if pid == 0:
            os.close(writer)
            if not os.read(reader, 1):
                os._exit(1)  # killed before it could say so: its owner starts another
            os.close(reader)
            return self._become(asked, *passed)
        for each in (reader, *passed):
            os.close(each)
        if pid > 0:
            self._answer({"pid": pid})
            os.write(writer, b"\n")
        os.close(writer)
        return None

    def _become(self, asked: dict[str, Any], log: int, report: int) -> list[str]:
        """A child as if it had been started by its command. ``{report}`` in that is the number of its descriptor here."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._ended, self._signalled, *self._owner):
            os.close(each)
        self._line.close()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ.clear()
        os.environ.update(asked["env"])
        argv = [part.replace("{report}", str(report)) for part in asked["argv"]]
        entitle(argv)
        return argv[argv.index("-m") + 1 :]

    def _reap(self) -> None:
        try:
            while os.read(self._ended, 512):
                pass
        except BlockingIOError:
            pass
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                self._codes[pid] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                while len(self._codes) > KEPT_CODES:
                    del self._codes[next(iter(self._codes))]
        except ChildProcessError:
            pass

    def _answer(self, answer: dict[str, Any]) -> None:
        try:
            self._line.send(json.dumps(answer).encode())
        except OSError:
            pass  # its owner has ended: what it has begun goes on, and is found by the next


def _descriptor(pid: int) -> list[int]:
    """One that can be read once ``pid`` has ended, where the system has them."""
    try:
        return [os.pidfd_open(pid)] if hasattr(os, "pidfd_open") else []
    except OSError:
        return []


def entitle(argv: list[str]) -> bool:
    """Have others see ``argv`` as this process's command line, in the room of the one that it was started with; whether they do."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    stat = Path("/proc/self/stat").read_bytes()
    fields = stat[stat.rindex(b")") + 2 :].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    if not start or len(words) > end - start:
        return False
    ctypes.memmove(start, words.ljust(end - start, b"\0"), end - start)
    return Path("/proc/self/cmdline").read_bytes().startswith(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
