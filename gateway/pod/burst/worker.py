"""One rank of a burst: ``python -m gateway.pod.burst.worker`` runs the cell and tells its agent what became of it.

Which rank it is stands in the environment, as the engine that started it has put it there. All that it or its children print goes to
the agent through pipes of its own. It must never start anything before the agent knows its process and says so, nor outlive its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from ...protocol import burst

_PR_SET_PDEATHSIG = 1
# Where engines say which rank a process is: torch elastic and ours, Open MPI, MPICH and Intel's.
_NAMES = {
    "RANK": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "WORLD_SIZE": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    "LOCAL_RANK": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
    "LOCAL_WORLD_SIZE": ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
}


class Line:
    """The rank's line to its agent: one JSON object a line."""

    def __init__(self, path: str, rank: int, label: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._heard = b""
        self._whole = threading.RLock()  # threads of the cell may display things at the same time
        os.register_at_fork(after_in_child=self._forked)
        pipes = [os.pipe(), os.pipe()]
        hello = json.dumps({"t": burst.HELLO, "rank": rank, "pid": os.getpid(), "as": label}).encode() + b"\n"
        self._taken, writer = os.pipe()
        socket.send_fds(self._socket, [hello], [*(reader for reader, _ in pipes), writer])
        os.close(writer)
        for (reader, writer), descriptor in zip(pipes, (1, 2)):
            os.dup2(writer, descriptor)
            os.close(reader)
            os.close(writer)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # so that lines of the cell and of what it starts don't mix

    def say(self, kind: str, **fields: Any) -> None:
        """An event; what is bytes elsewhere lies in a file."""
        data = json.dumps({"t": kind, **fields}).encode() + b"\n"
        with self._whole:
            self._socket.sendall(data)
            if kind == burst.SHOW:
                os.read(self._taken, 1)  # or what is printed next could be heard before it

    def _forked(self) -> None:
        self._whole = threading.RLock()  # whoever had it isn't here

    def hear(self, wait: bool) -> Optional[dict[str, Any]]:
        """The agent's next word; None where there is none yet and ``wait`` is false, or will be none any more."""
        while b"\n" not in self._heard:
            try:
                chunk = self._socket.recv(1 << 12, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not chunk:
                return None
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)  # type: ignore[no-any-return]


def place_of(env: Mapping[str, str]) -> dict[str, int]:
    """``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK`` and ``LOCAL_WORLD_SIZE``, by that environment."""
    found = {name: next((int(env[each]) for each in names if each in env), 0) for name, names in _NAMES.items()}
    together = int(env.get(burst.TOGETHER_VARIABLE, 0))
    if together:
        found.update({"LOCAL_RANK": found["RANK"] % together, "LOCAL_WORLD_SIZE": together})
    return {**found, "LOCAL_WORLD_SIZE": found["LOCAL_WORLD_SIZE"] or 1}


def main() -> int:
    """0: the cell has run; 1: it has failed, and the agent knows how."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the cell runs there is nothing to clean up
    # 1. tell the agent who we are, so that it can end us
    place = place_of(os.environ)
    os.environ.pop(burst.TOGETHER_VARIABLE, None)
    os.environ.update({name: str(value) for name, value in place.items()})
    del place["LOCAL_WORLD_SIZE"]  # whoever knows the word looks for it there
    path = os.environ[burst.SOCKET_VARIABLE]
    try:
        os.setpgid(0, 0)
    except OSError:
        pass  # it leads a group already
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: the agent has to find us
    first = int(os.environ.pop(burst.FIRST_VARIABLE, 0))
    number = first + place["RANK"]
    line = Line(path, number, f"{os.environ[burst.ROLE_VARIABLE]} {place['RANK']}" if first else "")
    # 2. once it is our turn, run the cell; what its end prints goes out as ever
    from .cell import Part, prepare, run

    prepare(Path(path).parent)
    line.say(burst.PREPARED)
    word = line.hear(wait=True)
    return 1 if word is None else run(Path(path).parent, Part(number, place, follows=first > 0), line, word.get("state"))


if __name__ == "__main__":
    sys.exit(main())
