"""A Ray cluster for one burst: ``python -m gateway.pod.burst.ray_cluster FOLDER READY PORT CLIENT_PORT CPUS GPUS``, until told to end.

It makes the token that all of it asks for, and leaves it where the environment says, then the file READY. It must never start a Ray that
runs what anybody sends it, nor end one that isn't its own, as ``ray stop`` does.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterator
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
    folder, ready, port, client_port, cpus, gpus = Path(argv[1]), *argv[2:7]
    refusal = _refusal()
    if refusal:
        print(refusal, file=sys.stderr)
        return 1
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: sys.exit(0))
    with open(os.environ["RAY_AUTH_TOKEN_PATH"], "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(secrets.token_hex(32))
    log = folder / "ray.log"
    with _scratch() as place:
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}",
            f"--num-cpus={cpus}", f"--num-gpus={gpus}", "--include-dashboard=false", "--dashboard-agent-listen-port=0",
            "--disable-usage-stats", "--log-color=false", f"--temp-dir={place}", *_client(client_port),
        ]  # fmt: skip
        for _ in range(TRIES):
            with _running(command, log) as ray:
                while ray.poll() is None:
                    if STARTED in log.read_text(errors="replace"):
                        (folder / ready).touch()
                        while ray.poll() is None:
                            time.sleep(LOOK)
                        break
                    time.sleep(LOOK)
            if (folder / ready).exists():
                break
    print(last_words(log), file=sys.stderr)
    return 1


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
