"""How other processes of this user reach the broker: from a coroutine for as long as they have kernels, or once from the command line.

A process with kernels keeps a connection open. When that ends, because the broker was killed or a gateway has come or gone, it
finds or starts the next broker and registers its kernels there, so that no cell waits for ever. It must never lease anything itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from ..backends.places import Places
from ..protocol.errors import BrokerUnavailable, ElasticError, SupervisorLost, WireError
from ..protocol.wire import dumps, loads
from .refusals import answered_error
from .seat import MAX_LINE

log = logging.getLogger(__name__)

START_SECONDS = 20.0  # for a broker to come up
RETRY_SECONDS = 5.0  # between two attempts to find a broker, after the first has failed

_PACKAGES = str(Path(__file__).parents[2])
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")
_KEPT_KINDS = ("JUPYTER_CONFIG", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_PREFER_ENV_PATH", "XDG_")


def request(places: Places, do: str, timeout: float = 10.0, **fields: Any) -> dict[str, Any]:
    """One request to the broker that runs, a gateway's or an on-demand one, from code without an event loop.

    Raises ``BrokerUnavailable`` where none runs, and the error that it answers.
    """
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(timeout)
            line.connect(str(places.broker_socket))
            line.sendall(dumps({"do": do, **fields}) + b"\n")
            with line.makefile("rb") as file:
                answer = loads(file.readline())
    except (OSError, WireError) as exc:
        raise BrokerUnavailable(
            f"No broker answers on {places.broker_socket} ({exc}): it runs while a gateway or a kernel does. Start one of them."
        ) from None
    return _checked(answer)


class BrokerClient:
    """The line of one process to whatever broker there is. All on one event loop."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._kernels: dict[str, str] = {}  # id: place
        self._line: _Line | None = None
        self._reaching = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def ready(self) -> None:
        """Find or start a broker, ahead of the first kernel. Raises ``BrokerUnavailable``."""
        await self._reach()

    async def register(self, kernel_id: str, place: str) -> None:
        """Have this kernel leased to from now on, by this broker and whatever comes after it. Raises ``BrokerUnavailable``."""
        self._kernels[kernel_id] = place
        try:
            await self._register(place)
        except BaseException:
            self._kernels.pop(kernel_id, None)
            raise
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="elastic broker line")

    def forget(self, kernel_id: str) -> None:
        """The kernel has ended (the broker sees that by itself); after the last one the line is not kept."""
        self._kernels.pop(kernel_id, None)
        if not self._kernels and self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None
            if self._line is not None:
                self._line.close()

    # inside

    async def _register(self, place: str) -> None:
        """Twice: a broker that answers one moment may be handing over in the next."""
        try:
            await (await self._reach()).ask("register", place=place)
        except BrokerUnavailable:
            await (await self._reach()).ask("register", place=place)

    async def _keep(self) -> None:
        """Whenever the line ends: the next broker, and all kernels registered there."""
        while self._kernels:
            if self._line is not None:
                await self._line.ended.wait()
            for kernel_id, place in list(self._kernels.items()):
                try:
                    await self._register(place)
                except SupervisorLost:
                    self._kernels.pop(kernel_id, None)
                except ElasticError as exc:
                    log.warning("GPUs can't be leased just now, and cells that need one wait: %s", exc)
                    await asyncio.sleep(RETRY_SECONDS)
                    break

    async def _reach(self) -> _Line:
        async with self._reaching:
            waited = 0.0
            while self._line is None or self._line.ended.is_set():
                try:
                    self._line = _Line(*await asyncio.open_unix_connection(str(self._places.broker_socket), limit=MAX_LINE))
                except OSError:
                    await self._see_to_a_broker(waited)
                    await asyncio.sleep(0.03)
                    waited += 0.03
            return self._line

    async def _see_to_a_broker(self, waited: float) -> None:
        if self._process is None or self._process.poll() is not None:
            if self._process is not None and self._process.returncode:
                self._process = None
                raise BrokerUnavailable(f"No broker could be started. It said:\n{_last_words(self._places.broker_log)}")
            self._process = await asyncio.to_thread(self._start)
        if waited >= START_SECONDS:
            raise BrokerUnavailable(f"No broker came up within {START_SECONDS:g} seconds; see {self._places.broker_log}.")

    def _start(self) -> subprocess.Popen[bytes]:
        """A broker of its own, detached: it serves others too. (Where two start at once, one ends by itself.)"""
        env = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_KINDS)}
        with open(os.open(self._places.broker_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "wb") as log_file:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "gateway.burst.process", f"--LocalBackend.runtime_dir={self._places.root}"],
                cwd="/", env={**env, "PYTHONPATH": _PACKAGES}, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file,
                start_new_session=True,
            )  # fmt: skip


class _Line:
    """One connection; ``ended`` is set when the other side has hung up."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ended = asyncio.Event()
        self._reader, self._writer = reader, writer
        self._asked: deque[asyncio.Future[dict[str, Any]]] = deque()
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """The answer. Raises the error that was answered, ``BrokerUnavailable`` where the line ends first."""
        if self.ended.is_set():
            raise BrokerUnavailable("The broker has just gone.")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._writer.write(dumps({"do": do, **fields}) + b"\n")
        return _checked(await answer)

    def close(self) -> None:
        self._writer.close()

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                answer = self._asked.popleft()
                if not answer.done():
                    answer.set_result(loads(line))
        except (OSError, WireError, IndexError, ValueError) as exc:
            log.warning("the broker's line is cut: %s", exc)
        finally:
            self.ended.set()
            self._writer.close()
            for answer in self._asked:
                if not answer.done():
                    answer.set_exception(BrokerUnavailable("The broker has gone while it was asked."))


def _last_words(path: Path, most: int = 1500) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return "nothing"


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if not answer.get("ok"):
        raise answered_error(answer)
    return answer
