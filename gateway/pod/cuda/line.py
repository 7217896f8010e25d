"""The supervisor's end of the line to its helper: requests in a row, answers and events by callback, the helper's end told.

It must never wait for the helper, nor kill it: a driver call that was begun has to end by itself.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from typing import Any, Callable

from ..reactor import Reactor

log = logging.getLogger(__name__)

Fields = dict[str, Any]


class Helper:
    """One helper process. ``on_lost()`` is called where it ends although it was still of use; ``variable``: by which kernels' processes
    are told apart."""

    def __init__(self, reactor: Reactor, variable: str, on_lost: Callable[[], None]) -> None:
        """Raises ``OSError`` where none can be started."""
        self._reactor, self._on_lost = reactor, on_lost
        ours, theirs = socket.socketpair()
        env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}  # it has to see all GPUs
        env[variable] = ""  # should this very supervisor have been started from a kernel: the helper is no process of that one
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateway.pod.cuda.helper", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=env, start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid
        self._line, self._rest = ours, b""
        self._line.setblocking(False)
        self._count = 0
        self._asked: dict[int, tuple[Callable[[Fields], None], Callable[[Fields], None]]] = {}
        reactor.add(self._line.fileno(), self._readable)

    @property
    def busy(self) -> bool:
        return bool(self._asked)

    def ask(self, do: str, answer: Callable[[Fields], None], event: Callable[[Fields], None] = lambda fields: None, **fields: Any) -> None:
        """``answer(fields)`` is called once, with ``ok``, unless this helper is lost or dismissed before; ``event(fields)`` meanwhile."""
        self._count += 1
        self._asked[self._count] = answer, event
        try:
            self._line.sendall(json.dumps({"id": self._count, "do": do, **fields}).encode() + b"\n")
        except OSError:
            pass  # the end of the line is told by the loop

    def dismiss(self) -> None:
        """It is needed no more; it ends once the call that it may be in is over."""
        self._asked.clear()
        self._hang_up()

    def _readable(self) -> None:
        try:
            chunk = self._line.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            log.warning("the helper %d has ended", self.pid)
            self._asked.clear()
            self._hang_up()
            self._on_lost()
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._heard(json.loads(line))

    def _heard(self, said: Fields) -> None:
        number = said.pop("id")
        answer, event = self._asked.get(number, (None, None))
        if answer is None or event is None:  # dismissed by what an earlier line of this very chunk has led to
            return
        if "ok" not in said:
            event(said)
            return
        del self._asked[number]
        answer(said)

    def _hang_up(self) -> None:
        if self._line.fileno() >= 0:
            self._reactor.remove(self._line.fileno())
            self._line.close()
        self._process.poll()
