"""The one seat of a broker on this machine (for one runtime folder): who sits on it, how it is taken and handed over.

Whoever listens on ``broker.sock`` is the broker. The lock beside it is held only while that changes, so that two that start at
once can't both find it free. It must never unlink a socket on which somebody answers.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
from typing import Any

from ..backends.places import Places
from ..protocol.errors import BrokerUnavailable, WireError
from ..protocol.wire import dumps, loads

MAX_LINE = 1 << 20
WAIT = 20.0  # seconds for another's change of brokers, and for an old broker to go

GATEWAY, BROKER = "gateway", "broker"  # kinds: a gateway is asked by nobody to go, an on-demand broker makes way for a gateway
RUNS = "broker_runs"  # reason: somebody sits there and stays


class Seat:
    """Taken: the listening socket of the broker."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self.listener, self._path = listener, path
        self._file = _identity(path)

    def leave(self) -> None:
        """Nobody finds us there any more."""
        try:
            if _identity(self._path) == self._file:
                os.unlink(self._path)
        except OSError:
            pass
        self.listener.close()


async def take(places: Places, kind: str) -> Seat:
    """Become the broker; a gateway takes over from an on-demand broker. Raises ``BrokerUnavailable``, reason ``RUNS`` where another
    stays."""
    lock = os.open(places.broker_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await _locked(lock)
        path = str(places.broker_socket)
        if await _answers(path):
            if kind != GATEWAY:
                raise BrokerUnavailable(f"A broker listens on {path} already.", reason=RUNS)
            await _ask_to_go(path)
        return _sit_down(path)
    finally:
        os.close(lock)


async def ask(path: str, timeout: float = 10.0, **request: Any) -> dict[str, Any]:
    """One request to whoever listens on ``path``, on a connection of its own; the answer, with ``ok``. Raises ``OSError`` where
    nobody does, ``BrokerUnavailable`` where there is no answer."""
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE)
    pid = _pid(writer.get_extra_info("socket"))
    try:
        writer.write(dumps(request) + b"\n")
        async with asyncio.timeout(timeout):
            line = await reader.readline()
        if line:
            return loads(line)
        why, remedy = "it hung up", "try again"
    except TimeoutError:
        why = f"nothing came within {timeout:g} seconds"
        remedy = "it may be stopped or overloaded: let it go on (`kill -CONT {}`) or end it, and try again".format(pid or "PID")
    except (WireError, ValueError) as exc:
        why, remedy = f"what it said makes no sense ({exc})", "end it, and try again"
    finally:
        writer.close()
    who = f"The broker on {path}" + (f" (process {pid})" if pid else "")
    raise BrokerUnavailable(f"{who} does not answer: {why}. What helps: {remedy}.")


async def _locked(lock: int) -> None:
    for _ in range(int(WAIT / 0.02)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            await asyncio.sleep(0.02)
    raise BrokerUnavailable(f"Another process has been becoming the broker for {WAIT:g} seconds: end it and try again.")


async def _answers(path: str) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


async def _ask_to_go(path: str) -> None:
    try:
        answer = await ask(path, WAIT, do="handover")
    except OSError:
        return  # just gone
    if not answer.get("ok"):
        raise BrokerUnavailable(str(answer.get("message")), reason=str(answer.get("reason") or RUNS))
    for _ in range(int(WAIT / 0.02)):
        if not await _answers(path):
            return
        await asyncio.sleep(0.02)
    raise BrokerUnavailable(f"The broker on {path} has handed over but does not go: end it (`jupyter elastic-gateway status` shows it).")


def _pid(connected: socket.socket) -> int:
    """Who listens at the other end; 0 where the system doesn't tell, or it lives in another container."""
    try:
        pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    except OSError:
        return 0
    return int(pid)


def _identity(path: str) -> tuple[int, int]:
    """Of the file there now; a file system may give a removed one's number to the next."""
    seen = os.stat(path)
    return seen.st_ino, seen.st_ctime_ns


def _sit_down(path: str) -> Seat:
    try:
        os.unlink(path)  # left by one that was killed
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX)
    listener.setblocking(False)
    listener.bind(path)  # its folder is private
    os.chmod(path, 0o600)
    listener.listen(128)
    return Seat(listener, path)
