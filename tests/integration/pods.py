"""A supervisor as a pod has it: told by a read-only file, dialled over the network with keys; for the integration tests."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
import weakref
from pathlib import Path
from typing import Any

import zmq

from gateway.backends.base import LinkKeys, Supervisor
from gateway.broker.link import KernelLink
from gateway.pod.child import last_words
from gateway.protocol import wire
from gateway.protocol.model import Spec

from .supervised import PATIENCE, PYTHON


class Pod(Supervisor):
    """One supervisor and all that a gateway knows of it. ``prefix``: what it is started by, ``python`` and ``environ`` what it is run by,
    ``group``: who may read its Secret and write to its volume, as a pod's fsGroup."""

    def __init__(
        self, prefix: list[str] | None = None, python: str = sys.executable, environ: dict[str, str] | None = None,
        cwd_of_supervisor: str | None = None, folder: Path | None = None, group: int | None = None, **spec: Any,
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
        if group is not None:
            os.chown(self.spec, -1, group)
            os.chown(self.folder, -1, group)
            secret.chmod(0o755)
            self.folder.chmod(0o2777)
        self._inside = bool(prefix)
        reader, writer = os.pipe()
        self.log = secret / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*(prefix or []), python, "-m", "gateway.pod.supervisor", str(self.folder), str(writer), "--spec", str(self.spec)],
                pass_fds=[writer], stdout=log, stderr=log, env=environ, cwd=cwd_of_supervisor, start_new_session=True,
            )  # fmt: skip
        weakref.finalize(self, self.process.kill)  # where a test fails before it has stopped it
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
            os.kill(self._pid(), signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def _pid(self) -> int:
        """The supervisor's, which is the child of what made its namespaces where it has any."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]) if self._inside else pid

    def last_words(self) -> str:
        return last_words(self.log)


class Browser:
    """Keeps what is delivered; ``said(msg_id)`` returns what a cell printed, once it has ended."""

    def __init__(self, link: KernelLink, name: str) -> None:
        self.link, self.name, self.there = link, name, asyncio.Event()
        self.heard: list[list[bytes]] = []
        self._more = asyncio.Event()
        link.attach(name, self)

    def attached(self, n: int, lost: int, seen: int) -> None:
        self.there.set()

    def deliver(self, n: int, channel: str, parts: list[bytes]) -> None:
        self.heard.append(parts)
        self.link.ack(self.name, n)
        self._more.set()

    def taken(self, m: int) -> None: ...

    def cut(self, reason: str) -> None: ...

    def lost(self, reason: str) -> None: ...

    async def run(self, code: str) -> str:
        """What a cell printed, once its reply is there. Raises ``RuntimeError`` where the cell did."""
        msg_id = os.urandom(8).hex()
        header = {"msg_id": msg_id, "msg_type": "execute_request", "session": self.name, "username": "", "date": "", "version": "5.4"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        self.link.send(self.name, "shell", [wire.dumps(part) for part in (header, {}, {}, content)])
        while True:
            of_cell = [(wire.loads(p[0])["msg_type"], wire.loads(p[3])) for p in self.heard if wire.loads(p[1]).get("msg_id") == msg_id]
            for kind, content in of_cell:
                if kind == "execute_reply" and content["status"] != "ok":
                    raise RuntimeError(f"{content}; the cell's messages: {of_cell}")
            if any(kind == "execute_reply" for kind, _ in of_cell):
                return "".join(content["text"] for kind, content in of_cell if kind == "stream")
            self._more.clear()
            await self._more.wait()
