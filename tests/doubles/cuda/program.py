"""A Python program with device memory, worked line by line from a test."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import Any

from . import HERE, Node

PATIENCE = 20.0
_LOOP = """
import json, sys
scope = {}
for line in sys.stdin:
    code = json.loads(line)
    try:
        try:
            answer = eval(code, scope)
        except SyntaxError:
            exec(code, scope)
            answer = None
        print(json.dumps({"answer": answer}), flush=True)
    except Exception as exc:
        print(json.dumps({"error": type(exc).__name__ + ": " + str(exc)}), flush=True)
"""


class Program:
    """``do(code)`` runs a statement or an expression there and returns its value; ``begin`` doesn't wait for it."""

    def __init__(self, node: Node | None = None, start: bool = True, **env: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1", **(node.env if node else {}), **env}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LOOP], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.pid = self.process.pid
        self._rest = b""
        if start:
            self.do("import device; device.start()")

    def begin(self, code: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(code).encode() + b"\n")
        self.process.stdin.flush()

    def answered(self, patience: float = 0.0) -> bool:
        """Whether an answer has come within so many seconds."""
        return b"\n" in self._rest or bool(select.select([self.process.stdout], [], [], patience)[0])

    def answer(self) -> Any:
        assert self.process.stdout
        while b"\n" not in self._rest:
            if not self.answered(PATIENCE):
                raise TimeoutError("the program doesn't answer")
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError(f"the program ended: {self.process.wait()}")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        said = json.loads(line)
        if "error" in said:
            raise RuntimeError(said["error"])
        return said["answer"]

    def do(self, code: str) -> Any:
        self.begin(code)
        return self.answer()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
