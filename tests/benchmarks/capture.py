"""Arrays from a notebook to two ranks, beside the same bytes through bare sockets. Run as a module it is the receiving end.

Both ends are processes of this machine, connected by loopback; both read what they got, so that every page was really there.
"""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from gateway.magics import capture as capturing

RANKS = 2
MODULE = "tests.benchmarks.capture"


class Receiver:
    def __init__(self, how: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._process = subprocess.Popen([sys.executable, "-m", MODULE, how, str(listener.getsockname()[1])])
            self._socket = listener.accept()[0]
        self._answers = self._socket.makefile("rb")
        assert self._answers.readline() == b"ready\n"

    def send(self, blobs: list[Any]) -> None:
        views = [memoryview(blob).cast("B") for blob in blobs]
        self._socket.sendall(json.dumps([len(view) for view in views]).encode() + b"\n")
        for view in views:
            self._socket.sendall(view)
        assert self._answers.readline() == b"got it\n"

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
        self._process.wait(10)


def to_all(receivers: list[Receiver], blobs: list[Any]) -> None:
    threads = [threading.Thread(target=receiver.send, args=(blobs,)) for receiver in receivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def capture(gigabytes: float = 1.0, rounds: int = 3) -> dict[str, float]:
    """A cell that reads a gigabyte of arrays, packed and run in two ranks, beside a bare copy of it over loopback."""
    import numpy

    count = 4
    arrays = {f"a{n}": numpy.full(int(gigabytes * 1e9 / 8 / count), 1.0) for n in range(count)}
    cell = "total = " + " + ".join(f"{name}.sum()" for name in arrays)
    packing, ours, bare = [], [], []
    before = peak()
    for _ in range(rounds):
        for how, times in (("rank", ours), ("bare", bare)):
            receivers = [Receiver(how) for _ in range(RANKS)]
            started = time.perf_counter()
            if how == "rank":
                capsule = capturing.pack(cell, arrays)
                packing.append(time.perf_counter() - started)
                to_all(receivers, capsule.blobs)
            else:
                to_all(receivers, list(arrays.values()))
            times.append(time.perf_counter() - started)
            for receiver in receivers:
                receiver.close()
    return {
        "gigabytes": gigabytes, "pack_ms": 1000 * min(packing), "ranks_s": min(ours), "bare_copy_s": min(bare),
        "bare_copy_over_ranks": min(bare) / min(ours), "more_memory_in_the_kernel_mb": (peak() - before) / 1e6,
    }  # fmt: skip


def receive(how: str, port: int) -> None:
    import numpy

    from gateway.pod import rank

    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"ready\n")
    lines = connection.makefile("rb", buffering=0)
    sizes = json.loads(lines.readline())
    arena = rank.Arena(sizes) if how == "rank" else None
    slots = arena.slots if arena else [memoryview(bytearray(size)) for size in sizes]
    for slot in slots:
        view = slot
        while len(view):
            view = view[connection.recv_into(view) :]
    if arena:
        failed = rank.load(arena.private, arena=arena).run({})
        assert failed is None, failed.text
    else:
        assert sum(numpy.frombuffer(slot, float).sum() for slot in slots)
    connection.sendall(b"got it\n")


if __name__ == "__main__":
    receive(sys.argv[1], int(sys.argv[2]))
