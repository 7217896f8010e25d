"""The socket through which ``%gpu`` in the kernel speaks to its supervisor: one JSON object a line, each answered by one.

It listens in the kernel's own folder, for this user alone. It must never block, nor trust what it reads: the kernel runs anything.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any, Callable, Optional

from ..protocol.errors import BadRequest, ElasticError
from ..protocol.wire import dumps, loads
from .reactor import Reactor

log = logging.getLogger(__name__)

MAX_LINE = 64 << 10
MAX_CALLERS = 16


class MagicSocket:
    """``answer(request, later)`` returns the fields of the answer, or raises an ``ElasticError``, or returns None: then it calls
    ``later`` with a whole answer once there is one."""

    def __init__(
        self, reactor: Reactor, path: str,
        answer: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], Optional[dict[str, Any]]],
    ) -> None:  # fmt: skip
        self._reactor, self._path, self._answer = reactor, path, answer
        self._callers: dict[socket.socket, bytearray] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(4)
        reactor.add(self._listener.fileno(), self._accept)

    def close(self) -> None:
        for caller in list(self._callers):
            self._hang_up(caller)
        self._reactor.remove(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        try:
            caller = self._listener.accept()[0]
        except OSError:
            return
        if len(self._callers) >= MAX_CALLERS:
            self._hang_up(next(iter(self._callers)))
        caller.setblocking(False)
        self._callers[caller] = bytearray()
        self._reactor.add(caller.fileno(), lambda: self._read(caller))

    def _read(self, caller: socket.socket) -> None:
        buffer = self._callers[caller]
        try:
            chunk = caller.recv(MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        buffer += chunk
        if not chunk or (len(buffer) > MAX_LINE and b"\n" not in buffer):
            self._hang_up(caller)
            return
        while b"\n" in buffer:
            line, _, rest = bytes(buffer).partition(b"\n")
            buffer[:] = rest
            try:
                fields = self._answer(loads(line), lambda answer: self._reply(caller, answer))
                if fields is None:
                    continue
                answer = {"ok": True, **fields}
            except ElasticError as exc:
                answer = {"ok": False, **exc.to_json()}
            except (KeyError, TypeError, ValueError, OverflowError) as exc:
                answer = {"ok": False, **BadRequest(f"not understood: {exc}").to_json()}
            self._reply(caller, answer)
            if caller not in self._callers:
                return

    def _reply(self, caller: socket.socket, answer: dict[str, Any]) -> None:
        if caller not in self._callers:
            return  # it has not waited
        try:
            caller.sendall(dumps(answer) + b"\n")
        except OSError:
            self._hang_up(caller)

    def _hang_up(self, caller: socket.socket) -> None:
        if self._callers.pop(caller, None) is not None:
            self._reactor.remove(caller.fileno())
            caller.close()
