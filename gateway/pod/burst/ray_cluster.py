"""A node of a burst's Ray cluster: ``python -m gateway.pod.burst.ray_cluster FOLDER head IP PORT CPUS GPUS CLIENT_PORT NODES READY``, or
``... FOLDER worker IP ADDRESS CPUS GPUS``, until it is told to end.

On one machine the head makes the token that all of it asks for, where the environment says; pods have one token already. It leaves the file
READY once all nodes are there. It must never start a Ray that runs what anybody sends it, nor end one that isn't its own, as ``ray stop``
does.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..child import Child, last_words, started

SCRATCH, PREFIX = Path("/tmp"), "elastic-ray-"  # short: Ray's sockets lie below it, and their paths may have a hundred characters
STARTED = "Ray runtime started"
OLDEST = (2, 52)  # that asks for tokens
TRIES = 3  # Ray gives a node half a minute to start, which a machine under load can need more than once
LOOK = 0.05  # seconds


def main(argv: list[str]) -> int:
    folder, kind, ip, where, cpus, gpus, *more = argv[1:]
    refusal = _refusal()
    if refusal:
        print(refusal, file=sys.stderr)
        return 1
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: sys.exit(0))
    _keep_token(os.environ["RAY_AUTH_TOKEN_PATH"])
    log = Path(folder) / f"ray.{kind}.log"
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address={ip}"]
    size = [f"--num-cpus={cpus}", f"--num-gpus={gpus}", "--disable-usage-stats", "--log-color=false"]
    with _scratch() as place:
        if kind == "head":
            client_port, nodes, ready = more
            head = ["--head", f"--port={where}", "--include-dashboard=false", "--dashboard-agent-listen-port=0", f"--temp-dir={place}"]
            begun = _run([*start, *size, *head, *_client(client_port)], log, lambda: _ready(int(nodes), Path(folder) / ready))
        else:
            _await(where)
            begun = _run([*start, *size, f"--address={where}", "--dashboard-agent-listen-port=0"], log, lambda: None)
            while begun:  # its head is gone a moment before it is told to end itself
                time.sleep(LOOK)
    print(last_words(log), file=sys.stderr)
    return 1


def _run(command: list[str], log: Path, begun: Callable[[], None]) -> bool:
    """Until Ray has ended by itself. ``begun`` is called once it runs; returns whether it ever did."""
    for _ in range(TRIES):
        with _running(command, log) as ray:
            while ray.poll() is None:
                if STARTED in log.read_text(errors="replace"):
                    begun()
                    while ray.poll() is None:
                        time.sleep(LOOK)
                    return True
                time.sleep(LOOK)
    return False


def _await(address: str) -> None:
    """Its head is there: a node that looks for it earlier gives up a minute later."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
            return
        except OSError:
            time.sleep(LOOK)


def _ready(nodes: int, mark: Path) -> None:
    """Once all nodes have come."""
    if nodes > 1:
        ray: Any = importlib.import_module("ray")
        ray.init(logging_level="ERROR", log_to_driver=False)
        while sum(node["Alive"] for node in ray.nodes()) < nodes:
            time.sleep(LOOK)
        ray.shutdown()
    mark.touch()


def _keep_token(path: str) -> None:
    if not os.path.exists(path):
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(secrets.token_hex(32))


def _refusal() -> str:
    """Why there can't be one; "" where there can."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        return "The engine ray needs Ray in the kernel's environment: `pip install ray`."
    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < OLDEST:
        return f"The engine ray needs Ray {'.'.join(map(str, OLDEST))}: {ray.__version__} runs what anybody sends it. `pip install -U ray`."
    return ""


def _client(port: str) -> list[str]:
    """Its server for far clients starts with it where it can, and all would take the same port."""
    return [f"--ray-client-server-port={port}"] if importlib.util.find_spec("grpc") else []


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[Child]:
    ray = Child(command, dict(os.environ), "/", log)
    try:
        yield ray
    finally:
        ray.signal(signal.SIGKILL)
        ray.sweep()


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for it; those of clusters that were killed go, too."""
    for left in SCRATCH.glob(f"{PREFIX}*-*"):
        pid, _, since = left.name.removeprefix(PREFIX).partition("-")
        if pid.isdigit() and since.isdigit() and left.stat().st_uid == os.getuid() and started(int(pid)) != int(since):
            shutil.rmtree(left, ignore_errors=True)
    place = SCRATCH / f"{PREFIX}{os.getpid()}-{started(os.getpid())}"
    place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
