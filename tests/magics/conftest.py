"""A real IPython shell with the extension loaded, and a supervisor's socket that answers what a test wants."""

from __future__ import annotations

import atexit
import contextlib
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from gateway.protocol.model import KernelState


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """Its own shell for each test, without history on disk."""
    monkeypatch.delenv("ELASTIC_SUPERVISOR", raising=False)
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "gateway.magics")
    yield shell
    shell.run_line_magic("unload_ext", "gateway.magics")
    InteractiveShell.clear_instance()
    atexit.unregister(shell.atexit_operations)


class Supervisor:
    """The other end of the socket: remembers each question and gives ``answers``, a dict or raw bytes, in turn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[dict[str, Any]] = []
        self.answer: Any = {"ok": True, "message": "", "state": KernelState().to_json(), "mode": "on"}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def says(self, **lease: Any) -> None:
        """The state that it tells."""
        kernel = {name: lease.pop(name) for name in ("held", "simulated_bytes") if name in lease}
        mode, place = lease.pop("mode", "on"), lease.pop("place", None)
        state = KernelState(**kernel).to_json()
        state["lease"].update(lease)
        self.answer = {"ok": True, "message": "", "state": state, "mode": mode, **({"place": place} if place else {})}

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.path))  # wakes the thread
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                caller = self._listener.accept()[0]
            except OSError:
                return
            with caller, caller.makefile("rwb") as lines:
                question = lines.readline()
                if not question:
                    return
                self.asked.append(json.loads(question))
                if self.answer is None:
                    lines.readline()  # silent until the caller gives up
                    continue
                answer = self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode() + b"\n"
                with contextlib.suppress(BrokenPipeError):  # the caller may have read enough of a long answer
                    lines.write(answer)


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch, shell: InteractiveShell) -> Iterator[Supervisor]:
    with tempfile.TemporaryDirectory(prefix="eg-", dir="/tmp") as folder:  # socket paths are limited to 107 bytes
        supervisor = Supervisor(Path(folder) / "magic.sock")
        monkeypatch.setenv("ELASTIC_SUPERVISOR", str(supervisor.path))
        yield supervisor
        supervisor.close()
