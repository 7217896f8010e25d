"""The process beside a supervisor that talks to NVIDIA's driver: ``python -m gateway.pod.cuda.helper FD``.

One JSON object a line in, one answer a line out, with what it is doing in between. It lives as long as its supervisor, because
the driver takes seconds to start in a process. It must never hold a CUDA context, and never be killed in the middle of a call:
that leaves the driver and the kernel at odds.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import socket
import sys
import time
from typing import Any, Callable

from ...protocol.errors import DeviceError
from ...protocol.locks import default_folder
from ..claims import Claims
from ..processes import Identity, family, on_host
from .driver import Cuda, DriverError
from .nvml import Nvml, NvmlError
from .parking import UNFIT, Parking


def main(argv: list[str]) -> int:
    """Until the supervisor hangs up."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    line = socket.socket(fileno=int(argv[1]))
    try:
        hung_up = select.poll()
        hung_up.register(line, 0)  # which reports that alone, whatever is still to be read
        helper = Helper(lambda fields: _send(line, fields), lambda: not hung_up.poll(0))
        for request in line.makefile("rb"):
            if not helper.serve(json.loads(request)):
                break
    except OSError:
        pass
    return 0


def _send(line: socket.socket, fields: dict[str, Any]) -> None:
    try:
        line.sendall(json.dumps(fields).encode() + b"\n")
    except OSError:
        pass  # nobody is there to be told; what was begun is undone all the same


class Helper:
    """``send(fields)`` carries answers, which have ``ok``, and events, which haven't; ``heard()``: somebody is at the other end."""

    def __init__(self, send: Callable[[dict[str, Any]], None], heard: Callable[[], bool]) -> None:
        self._send = send
        self._id = 0
        self.missing = ""
        try:
            self._cuda, self._nvml = Cuda(), Nvml()
        except (OSError, NvmlError) as exc:
            self.missing = f"no NVIDIA driver answers: {exc}"
            return
        say, claims = lambda fields: self._send({"id": self._id, **fields}), Claims(default_folder())
        self._parking = Parking(self._cuda, self._nvml, say, heard, claims=claims)

    def serve(self, request: dict[str, Any]) -> bool:
        """Carry out one request; False: this process is of no use any more."""
        self._id = request.pop("id")
        try:
            answer = {"ok": True, **getattr(self, f"_{request.pop('do')}")(**request)}
        except DeviceError as error:
            answer = {"ok": False, "fatal": error.fatal, "occupied": error.occupied, **error.to_json()}
        except (DriverError, NvmlError, OSError) as exc:
            answer = {"ok": False, **DeviceError(f"NVIDIA's driver answered: {exc}. See the kernel's supervisor.log.").to_json()}
        self._send({"id": self._id, **answer})
        return not self.missing and answer.get("reason") != UNFIT

    # requests

    def _probe(self) -> dict[str, Any]:
        if self.missing:
            return {"missing": self.missing}
        flags = {
            uuid: {"mig": self._nvml.mig(uuid), "vgpu": self._nvml.vgpu(uuid), "mps": self._nvml.mps(uuid)} for uuid in self._nvml.uuids()
        }
        return {
            "missing": "" if flags else "the driver sees no GPU",
            "driver": self._nvml.driver(),
            "machine": platform.machine(),
            "checkpoints": self._cuda.checkpoints,
            "gpus": flags,
        }

    def _look(self, gpus: list[str]) -> dict[str, Any]:
        return {"used": self._parking.cards.used(gpus)}

    def _uses(self, root: int, mark: str, gpus: list[str], seconds: float) -> dict[str, Any]:
        """In a container the driver's process ids are none of ours, so that everybody counts: the lease is exclusive."""
        since = int((time.time() - seconds) * 1e6)
        pids = set().union(*(self._nvml.busy(uuid, since) for uuid in gpus))
        return {"used": bool(pids) and (not on_host() or not pids.isdisjoint(pid for pid, _ in family(root, mark)))}

    def _park(self, root: int, mark: str, gpus: list[str], floor: dict[str, int], lock_seconds: float) -> dict[str, Any]:
        return self._parking.park(root, mark, gpus, floor, lock_seconds)

    def _resume(
        self, processes: list[list[int]], sizes: dict[str, dict[str, int]], home: list[str], gpus: list[str], room_seconds: float
    ) -> dict[str, Any]:
        return self._parking.resume(_identities(processes), _by_pid(sizes), home, gpus, room_seconds)

    def _settle(
        self, processes: list[list[int]], goal: int, before: dict[str, int], sizes: dict[str, dict[str, int]], gpus: list[str],
        floor: dict[str, int],
    ) -> dict[str, Any]:  # fmt: skip
        self._parking.settle(_identities(processes), goal, before, _by_pid(sizes), gpus, floor)
        return {}

    def _freeze(self, root: int, mark: str, gpus: list[str]) -> dict[str, Any]:
        self._parking.freeze(root, mark, gpus)
        return {}

    def _sweep(self, root: int, mark: str, before: int, freeze: bool) -> dict[str, Any]:
        self._parking.sweep(root, mark, before, freeze)
        return {}


def _identities(processes: list[list[int]]) -> list[Identity]:
    return [(pid, start) for pid, start in processes]


def _by_pid(sizes: dict[str, dict[str, int]]) -> dict[int, dict[str, int]]:
    return {int(pid): memory for pid, memory in sizes.items()}


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv))
