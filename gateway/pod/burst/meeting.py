"""Where ranks meet their agent: a socket in the burst's folder, and the pipes that each rank brings for what it prints.

It must never block, nor wait for a rank that says nothing.
"""

from __future__ import annotations

import codecs
import json
import os
import selectors
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

from .journal import Journal

CHUNK = 1 << 16
PIPE_CHUNKS = 20  # as much as a pipe can hold, and more


@dataclass
class Rank:
    """One rank, as far as it has said who it is."""

    number: int
    pid: int
    through: bool = False  # its cell is: it has said so, or how it failed
    gone: bool = False
    pipes: dict[int, tuple[str, Any]] = field(default_factory=dict)  # descriptor: name of the stream, decoder


class Meeting:
    """``heard(rank, event)`` is called for each word of a rank, after what it has printed before."""

    def __init__(
        self, path: Path, selector: selectors.BaseSelector, journal: Journal, heard: Callable[[Rank, dict[str, Any]], None]
    ) -> None:
        self._selector, self._journal, self._heard = selector, journal, heard
        self.ranks: dict[int, Rank] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._path = path
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def all_done(self) -> bool:
        """Each rank that has come is through with its cell."""
        return bool(self.ranks) and all(rank.through for rank in self.ranks.values())

    def is_through(self, pid: int) -> bool:
        """Whether this process is a rank that is through with its cell."""
        return any(rank.through for rank in self.ranks.values() if rank.pid == pid)

    def signal(self, signum: int) -> None:
        """To every rank and what it has started. One that is through with its cell has nothing left to interrupt."""
        for rank in self.ranks.values():
            if not rank.gone and not (rank.through and signum == signal.SIGINT):
                _signal(rank.pid, signum)

    def kill_all(self) -> None:
        """What ranks have left running, too."""
        for rank in self.ranks.values():
            _signal(rank.pid, signal.SIGKILL)

    def close(self) -> None:
        self._selector.unregister(self._listener)
        self._listener.close()
        self._path.unlink()

    # inside

    def _accept(self) -> None:
        try:
            caller = self._listener.accept()[0]
        except OSError:
            return
        caller.setblocking(False)
        self._selector.register(caller, selectors.EVENT_READ, lambda: self._greet(caller))

    def _greet(self, caller: socket.socket) -> None:
        """A hello and two pipes."""
        self._selector.unregister(caller)
        try:
            data, descriptors, _, _ = socket.recv_fds(caller, CHUNK, 2)
            first, _, rest = data.partition(b"\n")
            hello = json.loads(first)
            rank = Rank(int(hello["rank"]), int(hello["pid"]))
        except (OSError, ValueError, KeyError, TypeError):
            caller.close()
            return
        for name, descriptor in zip(("stdout", "stderr"), descriptors):
            os.set_blocking(descriptor, False)
            rank.pipes[descriptor] = name, codecs.getincrementaldecoder("utf-8")("replace")
            self._selector.register(descriptor, selectors.EVENT_READ, lambda d=descriptor: self._print(rank, d))  # type: ignore[misc]
        self.ranks[rank.number] = rank
        buffer = bytearray()
        self._selector.register(caller, selectors.EVENT_READ, lambda: self._read(rank, caller, buffer))
        self._heard(rank, {"t": "hello"})
        self._listen(rank, buffer, rest)  # a quick rank has said more by now

    def _read(self, rank: Rank, caller: socket.socket, buffer: bytearray) -> None:
        try:
            chunk = caller.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            rank.gone = True
            self._selector.unregister(caller)
            caller.close()
            return
        self._listen(rank, buffer, chunk)

    def _listen(self, rank: Rank, buffer: bytearray, chunk: bytes) -> None:
        buffer += chunk
        if b"\n" not in chunk:
            return
        *lines, left = bytes(buffer).split(b"\n")
        buffer[:] = left
        for line in lines:
            try:
                event = json.loads(line)
                kind = event["t"]
            except (ValueError, KeyError, TypeError):
                continue
            self._print_all(rank)
            if kind in ("done", "failed"):
                rank.through = True
            self._heard(rank, event)

    def _print_all(self, rank: Rank) -> None:
        """What it has printed until now; a pipe holds no more than a few chunks."""
        for descriptor in list(rank.pipes):
            for _ in range(PIPE_CHUNKS):
                if not self._print(rank, descriptor):
                    break

    def _print(self, rank: Rank, descriptor: int) -> bool:
        """Whether there may be more."""
        if descriptor not in rank.pipes:
            return False  # read to its end in this very turn
        name, decoder = rank.pipes[descriptor]
        try:
            chunk = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        text = decoder.decode(chunk, final=not chunk)
        if text:
            self._journal.output(rank.number, name, text)
        if not chunk:
            del rank.pipes[descriptor]
            self._selector.unregister(descriptor)
            os.close(descriptor)
        return bool(chunk)


def _signal(pid: int, signum: int) -> None:
    """Ranks lead a group of their own."""
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        pass
