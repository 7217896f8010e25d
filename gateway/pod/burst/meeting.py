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
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional, Union

from ...protocol import burst
from .journal import Journal

CHUNK = 1 << 16
Each = Union[socket.socket, int]  # what a selector listens to: Python 3.9 needs the long word
PIPE_CHUNKS = 20  # as much as a pipe can hold, and more


@dataclass
class Rank:
    """One rank, as far as it has said who it is."""

    number: int
    pid: int
    label: str = ""  # where its number says too little
    line: Optional[socket.socket] = None
    prepared: bool = False  # it can begin at once
    through: bool = False  # its cell is: it has said so, or how it failed
    done: bool = False  # it is through, and has not failed
    left: bool = False  # it is through, and another group goes on
    gone: bool = False
    taken: Optional[int] = None  # where it hears that what it displays was taken
    pipes: dict[int, tuple[str, Any]] = field(default_factory=dict)  # descriptor: name of the stream, decoder

    @property
    def named(self) -> str:
        """At the beginning of a sentence."""
        return self.label.capitalize() or f"Rank {self.number}"

    @property
    def fields(self) -> dict[str, str]:
        """What its events carry beside its number."""
        return {"as": self.label} if self.label else {}


class Meeting:
    """``heard(rank, event)`` is called for each word of a rank, after what it has printed before."""

    def __init__(
        self, path: Path, selector: selectors.BaseSelector, journal: Journal, heard: Callable[[Rank, dict[str, Any]], None]
    ) -> None:
        self._selector, self._journal, self._heard = selector, journal, heard
        self.ranks: dict[int, Rank] = {}
        self._open: set[Each] = set()  # what the selector has of us
        self._hellos: list[Rank] = []  # of all that wait for a word on what they display
        self._listener = socket.socket(socket.AF_UNIX)
        self._path = path
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._listen_to(self._listener, self._accept)

    def all_done(self, but: Collection[int] = ()) -> bool:
        """Each rank that has come is through with its cell. ``but``: numbers of those that nobody waits for."""
        return bool(self.ranks) and all(rank.through for number, rank in self.ranks.items() if number not in but)

    def is_through(self, pid: int) -> bool:
        """Whether this process is a rank that is through with its cell."""
        return any(rank.through for rank in self.ranks.values() if rank.pid == pid)

    def are_through(self, numbers: Collection[int]) -> bool:
        """Whether all ranks of these numbers have come, and are through with their cell."""
        return all(number in self.ranks and self.ranks[number].through for number in numbers)

    def signal(self, signum: int) -> None:
        """To every rank and what it has started. One that is through with its cell has nothing left to interrupt."""
        for rank in self.ranks.values():
            if not rank.gone and not (rank.through and signum == signal.SIGINT):
                _signal(rank.pid, signum)

    def kill_all(self) -> None:
        """What ranks have left running, too."""
        for rank in self.ranks.values():
            _signal(rank.pid, signal.SIGKILL)

    def say(self, rank: Rank, kind: str, **fields: Any) -> None:
        """A word to one rank; no error where it has just ended."""
        if rank.line is not None and not rank.gone:
            try:
                rank.line.send(json.dumps({"t": kind, **fields}).encode() + b"\n")
            except OSError:
                pass

    def close(self) -> None:
        """After the end of all ranks. What still holds one of their pipes is heard no more."""
        for each in list(self._open):
            self._close(each)
        for rank in self._hellos:
            os.close(rank.taken)  # type: ignore[arg-type]
        self._path.unlink(missing_ok=True)  # the cell may have removed it

    # inside

    def _accept(self) -> None:
        try:
            caller = self._listener.accept()[0]
        except OSError:
            return
        caller.setblocking(False)
        self._listen_to(caller, lambda: self._greet(caller))

    def _listen_to(self, each: Each, ready: Callable[[], Any]) -> None:
        self._open.add(each)
        self._selector.register(each, selectors.EVENT_READ, ready)

    def _close(self, each: Each) -> None:
        self._open.discard(each)
        self._selector.unregister(each)
        os.close(each) if isinstance(each, int) else each.close()

    def _greet(self, caller: socket.socket) -> None:
        """A hello and three pipes: two for what it prints."""
        try:
            data, descriptors, _, _ = socket.recv_fds(caller, CHUNK, 3)
            first, _, rest = data.partition(b"\n")
            hello = json.loads(first)
            rank = Rank(int(hello["rank"]), int(hello["pid"]), str(hello.get("as") or ""), caller)
        except (OSError, ValueError, KeyError, TypeError):
            self._close(caller)
            return
        for name, descriptor in zip(("stdout", "stderr"), descriptors):
            os.set_blocking(descriptor, False)
            rank.pipes[descriptor] = name, codecs.getincrementaldecoder("utf-8")("replace")
            self._listen_to(descriptor, lambda d=descriptor: self._print(rank, d))  # type: ignore[misc]
        if len(descriptors) > 2:
            rank.taken = descriptors[2]
            os.set_blocking(rank.taken, False)
            self._hellos.append(rank)
        self.ranks[rank.number] = rank
        buffer = bytearray()
        self._selector.modify(caller, selectors.EVENT_READ, lambda: self._read(rank, caller, buffer))
        self._heard(rank, {"t": burst.HELLO})
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
            self._close(caller)
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
            if kind == burst.PREPARED:  # of interest here alone
                rank.prepared = True
                continue
            if kind in (burst.DONE, burst.FAILED, burst.LEFT):
                rank.through, rank.done, rank.left = True, kind == burst.DONE, kind == burst.LEFT
            self._heard(rank, event)
            if kind == burst.SHOW and rank.taken is not None:
                self._say_taken(rank.taken)

    def _say_taken(self, descriptor: int) -> None:
        try:
            os.write(descriptor, b"\0")
        except OSError:
            pass  # it has just ended

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
            self._journal.output(rank.number, name, text, **rank.fields)
        if not chunk:
            del rank.pipes[descriptor]
            self._close(descriptor)
        return bool(chunk)


def _signal(pid: int, signum: int) -> None:
    """Ranks lead a group of their own."""
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        pass
