"""Supervisors that are forked instead of started anew, where many are started: what each would import costs a fifth of a second.

One nursery (``gateway.pod.nursery``) belongs to this process and ends with it. Whoever asks must always be able to go on without it:
it may not be there yet, be killed, or not answer. Calls block for milliseconds, so they must never be made on an event loop.
"""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from .processes import started

log = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds for an answer, which takes milliseconds
MAX_ANSWER = 1 << 10
_PADDING = " " * 512  # as long as a supervisor's command line may get


class Started(Protocol):
    """A supervisor's process, as whoever started it knows it."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises ``subprocess.TimeoutExpired``. Blocks."""


class Forked:
    """A supervisor's process that is the nursery's child."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid = pid
        self._start, self._nursery = started(pid), nursery

    def wait(self, timeout: float | None = None) -> int:
        """As of a process of ours; 0 where the nursery can't say any more how it ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._start is not None and started(self.pid) == self._start:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked supervisor", timeout or 0.0)
            time.sleep(0.01)
        return self._nursery.code(self.pid) or 0


class Nursery:
    """To be asked by any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._ready = False
        self._useless = False  # it ended before it was ready, and would do so again
        self._closed = False

    def begin(self, env: Mapping[str, str]) -> None:
        """Have one ready soon, where there is none. No error where that is impossible."""
        with self._guard:
            if self._process is None and not self._useless and not self._closed:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                command = [sys.executable, "-P", "-m", "gateway.pod.nursery", str(theirs.fileno()), _PADDING]
                try:
                    self._process = subprocess.Popen(
                        command, cwd="/", env=dict(env), pass_fds=[theirs.fileno()], start_new_session=True,
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    )  # fmt: skip
                except OSError as exc:
                    log.info("supervisors are not forked: %s", exc)
                    ours.close()
                else:
                    self._line = ours
                theirs.close()

    @property
    def ready(self) -> bool:
        """A supervisor can be forked now."""
        with self._guard:
            return self._is_ready()

    def fork(self, argv: list[str], env: Mapping[str, str], log_file: int, report: int) -> Forked | None:
        """A supervisor with these descriptors; ``{report}`` in ``argv`` is the number of the second one there. None where there is no
        nursery that could do it: nothing has been started then."""
        with self._guard:
            if not self._is_ready():
                return None
            pid = self._ask({"argv": argv, "env": dict(env)}, [log_file, report]).get("pid")
        return Forked(pid, self) if isinstance(pid, int) else None

    def code(self, pid: int) -> int | None:
        """The exit code of a child that has ended, once; None where it isn't known."""
        with self._guard:
            code = self._ask({"ended": pid}, []).get("code") if self._is_ready() else None
        return code if isinstance(code, int) else None

    def close(self) -> None:
        """End it; supervisors go on."""
        with self._guard:
            self._closed = True
            self._give_up()

    def _is_ready(self) -> bool:
        if self._line is not None and not self._ready:
            self._line.setblocking(False)
            try:
                self._ready = bool(self._line.recv(MAX_ANSWER))
            except BlockingIOError:
                return False
            except OSError:
                pass
            if not self._ready:
                log.info("supervisors are not forked: what they would be forked from did not start")
                self._useless = True
                self._give_up()
            elif self._line is not None:
                self._line.settimeout(PATIENCE)
        return self._ready

    def _ask(self, request: Mapping[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """{} where it doesn't answer, and then it is ended, so that it can't obey later."""
        assert self._line is not None
        try:
            socket.send_fds(self._line, [json.dumps(request).encode()], descriptors)
            return dict(json.loads(self._line.recv(MAX_ANSWER)))
        except (OSError, ValueError) as exc:
            log.warning("what supervisors are forked from does not answer and is replaced: %s", exc)
        line = self._line
        self._give_up(close=False)
        try:  # what it has said before its end counts
            line.settimeout(0)
            return dict(json.loads(line.recv(MAX_ANSWER)))
        except (OSError, ValueError):
            return {}
        finally:
            line.close()

    def _give_up(self, close: bool = True) -> None:
        process, self._process = self._process, None
        line, self._line = self._line, None
        self._ready = False
        if process is not None:
            process.kill()
            process.wait()
        if line is not None and close:
            line.close()
