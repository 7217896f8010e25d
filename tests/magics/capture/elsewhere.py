"""Ranks for the tests: each cell runs in a process of its own, forked from one that has nothing of the notebook.

Run as a module it is that process: length and pickle in by standard input, length and pickle out by standard output.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]


class Answer(NamedTuple):
    back: list[bytearray] | None = None  # what ``give_back`` returned
    failed: list[bytearray] | None = None
    text: str = ""  # the failure's traceback
    output: str = ""
    shown: list[dict[str, Any]] = []
    refused: str = ""  # why it could not be loaded
    missing: list[dict[str, str]] = []


class Ranks:
    """Close it when done."""

    def __init__(self, *preload: str) -> None:
        """``preload``: modules that take long to import."""
        argv = [sys.executable, "-m", "tests.magics.capture.elsewhere", *preload]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def run(self, blobs: list[Any], names: dict[str, Any] | None = None, **returning: Any) -> Answer:
        assert self._process.stdin and self._process.stdout
        send(self._process.stdin, ([bytes(blob) for blob in blobs], names or {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0}, returning))
        return Answer(*receive(self._process.stdout))

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


def send(file: Any, value: Any) -> None:
    data = pickle.dumps(value)
    file.write(struct.pack("!Q", len(data)) + data)
    file.flush()


def receive(file: Any) -> Any:
    (size,) = struct.unpack("!Q", file.read(8))
    return pickle.loads(file.read(size))


def one(blobs: list[bytes], names: dict[str, Any], returning: dict[str, Any]) -> tuple[Any, ...]:
    from gateway.pod import rank

    shown: list[dict[str, Any]] = []
    strict, limit = returning.pop("strict", True), returning.pop("limit", None)
    try:
        cell = rank.load(blobs, strict=strict, limit=limit)
    except rank.LoadError as exc:
        return None, None, "", "", [], str(exc)
    failed = cell.run(names, lambda _, content: shown.append(content.get("data", content)))
    if failed:
        return None, [bytearray(part) for part in failed.blobs], failed.text, "", shown, "", cell.missing
    return [bytearray(part) for part in cell.give_back(**returning)], None, "", "", shown, "", cell.missing


def serve() -> None:
    for module in ("gateway.pod.rank", *sys.argv[1:]):
        importlib.import_module(module)  # so that each fork has it already

    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    while True:
        try:
            request = receive(source)
        except struct.error:
            return
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as result:
            if not os.fork():
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                send(result, one(*request))
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                os._exit(0)
            os.wait()
            result.seek(0)
            output.seek(0)
            text = output.read().decode()
            answer = list(receive(result)) if os.fstat(result.fileno()).st_size else [None, None, text]
            answer[3:4] = [text]
            send(target, tuple(answer))


if __name__ == "__main__":
    serve()
