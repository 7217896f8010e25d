"""A supervisor as a pod has it: told by a read-only file, dialled over the network with keys; for the integration tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
import weakref
from pathlib import Path
from typing import Any

import zmq

from gateway.backends.base import LinkKeys, Supervisor
from gateway.pod.child import last_words
from gateway.protocol.model import Spec

from .supervised import PATIENCE, PYTHON


class Pod(Supervisor):
    """One supervisor and all that a gateway knows of it. ``prefix``: what it is started by, ``python`` and ``env`` what it is run by."""

    def __init__(
        self, prefix: list[str] | None = None, python: str = sys.executable, env: dict[str, str] | None = None,
        folder: Path | None = None, cwd: str | None = None, **spec: Any,
    ) -> None:  # fmt: skip
        self.kernel_id, self.key = str(uuid.uuid4()), uuid.uuid4().hex
        self.owner, self.user, self.name, self.display, self.metadata, self.place = "gateway", "ada", "python3", "a.ipynb", {}, "pod"
        self.folder = folder or Path(tempfile.mkdtemp(prefix="pod-", dir="/tmp"))
        server, client = zmq.curve_keypair(), zmq.curve_keypair()
        self.link_curve = LinkKeys(server[0].decode(), client[0].decode(), client[1].decode())
        told = Spec(**{
            "kernel_id": self.kernel_id, "key": self.key, "argv": PYTHON, "env": dict(os.environ), "cwd": "/tmp", "user": "ada",
            "simulated": {"park_seconds": 0.05, "seconds_per_gb": 0.05}, "link_ip": "127.0.0.1",
            "link_curve": {"publickey": server[0].decode(), "secretkey": server[1].decode(), "client": client[0].decode()}, **spec,
        })  # fmt: skip
        secret = Path(tempfile.mkdtemp(prefix="secret-", dir="/tmp"))
        for each in (secret, self.folder):
            weakref.finalize(self, shutil.rmtree, each, ignore_errors=True)
        self.spec = secret / "spec.json"
        self.spec.write_text(json.dumps(told.to_json()))
        self.spec.chmod(0o440)
        reader, writer = os.pipe()
        self.log = secret / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*(prefix or []), python, "-m", "gateway.pod.supervisor", str(self.folder), str(writer), "--spec", str(self.spec)],
                pass_fds=[writer], stdout=log, stderr=log, env=env, cwd=cwd, start_new_session=True,
            )  # fmt: skip
        os.close(writer)
        self.said = os.read(reader, 4096).decode()
        os.close(reader)
        if self.said == "ready\n":
            identity = json.loads((self.folder / "run/supervisor.json").read_text())
            self.link_address, self.connection = identity["link"], identity["connection"]

    def alive(self) -> bool:
        return self.process.poll() is None

    async def end(self, grace: float) -> None:
        self.stop()

    def stop(self) -> int:
        """As a pod is stopped; returns the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE)

    def last_words(self) -> str:
        return last_words(self.log)
