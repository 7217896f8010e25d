"""Where kernel processes come from: command, environment and connection file, anew for each start; and what identifies a supervisor.

Imported before the kernel is started, so it must never import anything slow.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any, Callable, Optional

from ..protocol.model import Spec
from .child import Child, started

_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


class KernelProcess:
    """Where a kernel process comes from: its command, its environment and its connection file, anew for each start."""

    def __init__(self, folder: Path, spec: Spec, umask: int = -1) -> None:
        """``umask``: of the kernel, for the files that its user makes; -1: ours."""
        self._folder, self._spec, self._umask = folder, spec, umask
        self.child: Optional[Child] = None
        self.info: dict[str, Any] = {}  # where the kernel process listens
        self.starts = 0
        self.on_up: Optional[Callable[[], None]] = None  # called once, when the first process answers or has ended

    def start(self) -> None:
        """Start a process. Raises ``OSError`` where that is impossible; the old process must have ended."""
        self.starts += 1
        spec, path = self._spec, self._folder / "kernel.json"
        self.info = self._endpoints()
        path.write_text(json.dumps({**self.info, "key": spec.key, "signature_scheme": "hmac-sha256", "kernel_name": spec.name}))
        argv = [arg.replace("{connection_file}", str(path)) for arg in spec.argv]
        env = {
            **self.environment,
            "JPY_PARENT_PID": str(os.getpid()),
            "ELASTIC_SUPERVISOR": str(self._folder / "magic.sock"),
        }
        self.child = Child(argv, env, self.folder_of_work, self._folder / "kernel.log", self._umask)

    @property
    def environment(self) -> dict[str, str]:
        """That a kernel process is started with, but for what is this supervisor's own business."""
        return {**(os.environ if self._spec.inherit_env else {}), **self._spec.env}

    def came_up(self) -> None:
        """It has answered, or never will."""
        told, self.on_up = self.on_up, None
        if told is not None:
            told()

    @property
    def folder_of_work(self) -> str:
        spec = self._spec
        return spec.cwd if spec.fallback_cwd is None or os.path.isdir(spec.cwd) else spec.fallback_cwd

    def respawn(self, argv: Optional[list[str]], env: Optional[dict[str, str]], cwd: Optional[str]) -> None:
        """Start the next process, with whatever has changed."""
        self._spec.argv, self._spec.env, self._spec.cwd = argv or self._spec.argv, env or self._spec.env, cwd or self._spec.cwd
        self.start()

    def prepare(self, connection: dict[str, Any]) -> None:
        """Write what ``show`` will show, while a disk that is full can still be told of. Raises ``OSError``."""
        path = self._folder / "kernel.new"
        path.write_text(json.dumps({**connection, "key": self._spec.key, "kernel_name": self._spec.name}))

    def show(self) -> None:
        """Once the kernel has read its file, the file names the supervisor's ports: ``%connect_info`` then leads through the gate."""
        (self._folder / "kernel.new").replace(self._folder / "kernel.json")

    def _endpoints(self) -> dict[str, Any]:
        if self._spec.kernel_transport == "ipc":  # a new prefix for each process: no old socket file can be in the way
            ports = {f"{name}_port": at for at, name in enumerate(_CHANNELS, 1)}
            return {"transport": "ipc", "ip": str(self._folder / f"z{self.starts}"), **ports}
        return {"transport": "tcp", "ip": "127.0.0.1", **{f"{n}_port": p for n, p in zip(_CHANNELS, _free_ports(5))}}


def identity(folder: Path, spec: Spec, link: str, connection: dict[str, Any]) -> dict[str, Any]:
    """What ``supervisor.json`` says: all that a gateway needs in order to adopt this kernel."""
    from .. import __version__

    return {
        "kernel_id": spec.kernel_id, "pid": os.getpid(), "started": started(os.getpid()), "link": link, "connection": connection,
        "key": spec.key, "curve_secretkey": spec.curve_secretkey, "owner": spec.owner, "owner_pid": spec.owner_pid, "user": spec.user,
        "name": spec.name, "display": spec.display, "gpus": spec.gpus, "metadata": spec.metadata, "version": __version__,
        "born": time.time(),
    }  # fmt: skip


def wakeup(stop: Callable[[], object]) -> int:
    """SIGTERM and SIGINT call ``stop`` from the loop; returns the descriptor that the loop has to watch."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop())
    return reader


def give_back() -> None:
    """Return freed memory to the system, which the C library otherwise keeps for itself."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass  # another C library


def _free_ports(count: int) -> list[int]:
    """Ports of the loopback address that are free now, for kernels that speak only TCP."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
