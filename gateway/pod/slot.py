"""The process of a slot: its container has the GPUs that a lease is for, says which, and keeps them until they are empty.

``python -m gateway.pod.slot [--patience SECONDS]`` writes one JSON object a line to stdout, first ``{"devices": [UUID, ...]}``. Asked
to end (SIGTERM) it stays while somebody is on them, at most ``--patience`` seconds. Exit code 0: they were empty, or the driver can't
tell; 1: it had to leave before. It must never take a kernel's word for that, and never touch a GPU itself.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any, Optional

from .cuda.cards import RESIDUE
from .cuda.nvml import Nvml, NvmlError

PATIENCE = 570.0  # seconds; a pod's grace period has to be longer
AGAIN = 0.1  # seconds between two looks
VARIABLE = "NVIDIA_VISIBLE_DEVICES"  # how a device plugin tells a container's runtime what it got
_NO_DEVICE = frozenset({"", "all", "void", "none"})


def main(argv: list[str], env: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser("python -m gateway.pod.slot")
    parser.add_argument("--patience", type=float, default=PATIENCE, metavar="SECONDS")
    patience = parser.parse_args(argv[1:]).patience
    events: SimpleQueue[tuple[str, Any]] = SimpleQueue()  # of the signals, which may come at any moment, and of the driver's thread
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: events.put(("end", None)))
    eyes = Eyes(events)
    eyes.start()

    # 1. which devices; a driver may take seconds to start
    kind, found = events.get()
    if kind == "end":
        say({"empty": None, "why": "it was ended before the driver had answered"})
        return 0
    devices, by = (found, "driver") if found else (told(env), "environment")
    say({"devices": devices, "by": by, **({"why": eyes.missing} if eyes.missing else {})})

    # 2. until it is asked to end
    while events.get()[0] != "end":
        pass

    # 3. until nobody is on them
    end, shown = time.monotonic() + patience, None
    eyes.ask()
    while True:
        try:
            kind, left = events.get(timeout=max(0.0, end - time.monotonic()))
        except Empty:
            say({"empty": False, "why": f"somebody was still there, or the driver did not answer, after {patience:g} s"})
            return 1
        if kind == "end":
            continue  # asked again
        if left is None:
            say({"empty": None, "why": eyes.missing})
            return 0
        if not left:
            say({"empty": True})
            return 0
        if (names := sorted((uuid, sorted(on["processes"])) for uuid, on in left.items())) != shown:
            shown = names
            say({"waiting_for": left})
        eyes.ask(AGAIN)


def told(env: Mapping[str, str]) -> list[str]:
    """The devices that the environment names; a number is none, as it names another device in each container."""
    names = [name.strip() for name in env.get(VARIABLE, "").split(",")]
    return [name for name in names if name.lower() not in _NO_DEVICE and not name.isdigit()]


def say(fields: Mapping[str, Any]) -> None:
    print(json.dumps(fields), flush=True)


class Eyes(threading.Thread):
    """The driver's management library in a thread of its own, as any call may hang, and a slot has to end in time.

    Puts ("devices", what there is) once, and after each ``ask`` ("left", what is still on them by device; None: it can't tell).
    """

    def __init__(self, events: SimpleQueue[tuple[str, Any]]) -> None:
        super().__init__(daemon=True)
        self.missing = ""  # why the driver can't tell
        self._events = events
        self._questions: SimpleQueue[float] = SimpleQueue()
        self._floor: dict[str, int] = {}  # the least that was in use on each: the driver's own

    def ask(self, pause: float = 0.0) -> None:
        """Look again, after ``pause`` seconds."""
        self._questions.put(pause)

    def run(self) -> None:
        try:
            nvml: Optional[Nvml] = Nvml()
            devices = self._devices(nvml)
            self.missing = "" if devices else "the driver sees no GPU here"
        except (OSError, NvmlError) as exc:
            nvml, devices, self.missing = None, [], f"no NVIDIA driver answers here: {exc}"
        self._events.put(("devices", devices))
        while True:
            time.sleep(self._questions.get())
            self._events.put(("left", self._left(nvml, devices) if nvml and devices else None))

    def _devices(self, nvml: Nvml) -> list[str]:
        found = []
        for uuid in nvml.uuids():
            found += nvml.slices(uuid) if nvml.mig(uuid) else [uuid]
        for uuid in found:
            self._floor[uuid] = nvml.memory(uuid)[1]
        return found

    def _left(self, nvml: Nvml, devices: list[str]) -> Optional[dict[str, Any]]:
        """In a container the library may list no process of another: memory that is in use then counts as somebody's."""
        left = {}
        try:
            for uuid in devices:
                processes, used = nvml.processes(uuid), nvml.memory(uuid)[1]
                floor = self._floor[uuid] = min(used, self._floor[uuid])
                if processes or used > floor + RESIDUE:
                    left[uuid] = {"processes": list(processes), "bytes": max(used - floor, sum(processes.values()))}
        except NvmlError as exc:
            self.missing = f"NVIDIA's driver answered: {exc}"
            return None
        return left


if __name__ == "__main__":
    sys.exit(main(sys.argv, os.environ))
