"""What this node's driver really does with parked state: ten checks, ``python -m gateway.pod.cuda.checks``, as JSON, an object a line.

First ``{"gpus": [{"uuid", "rung", "reason"}]}``, then ``{"name", "ok", "value", "unit", "reason"}`` for each check as it ends, and in
between ``{"check"}`` and ``{"step", "pid"}`` with what is being done, so that whoever reads knows where a driver hangs. ``ok`` is null for
what could not be tried here, and the reason says why. It must never touch a process that it has not started itself, nor a GPU that has
no room, and it must promise nothing: it says what it saw.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

from ...protocol.errors import DeviceError
from ...protocol.ladder import Facts, rung
from ...protocol.model import Rung
from ..processes import Identity, family
from .cards import needs
from .driver import Cuda, DriverError
from .nvml import Nvml, NvmlError
from .parking import Parking
from .steps import Lost

GIB = 1 << 30
PATIENCE = 300.0  # seconds for one answer of a patient
NOBODY = 65534
PATIENT = Path(__file__).with_name("patient.py")


class Impossible(Exception):
    """This can't be tried here."""


class Patient:
    """One program with state on a GPU, alone in its world."""

    def __init__(self, parking: Parking, python: str, gpus: list[str], visible: Optional[list[str]] = None) -> None:
        self._parking, self.gpus = parking, gpus
        self.floor = parking.cards.used(gpus)
        name = uuid.uuid4().hex
        self._mark = f"ELASTIC_CHECK={name}"
        env = {**os.environ, "ELASTIC_CHECK": name, "CUDA_VISIBLE_DEVICES": ",".join(visible or gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        self._process = subprocess.Popen(
            [python, "-c", PATIENT.read_text()], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._parked: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, code: str) -> Any:
        """Raises ``Impossible`` with the patient's own words, ``DeviceError`` where it doesn't come back."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(code).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Impossible("it has ended") from None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:  # each line is answered before the next one is sent
            raise DeviceError(f"a program has not come back from {code!r} within {PATIENCE:g} s", reason="hangs")
        said = json.loads(self._process.stdout.readline() or '{"error": "it has ended"}')
        if "error" in said:
            raise Impossible(said["error"])
        return said["value"]

    def park(self) -> float:
        """Seconds. Raises ``DeviceError``."""
        began = time.monotonic()
        self._parked = self._parking.park(self.pid, self._mark, self.gpus, self.floor, 10.0)
        return time.monotonic() - began

    def resume(self, gpus: Optional[list[str]] = None) -> float:
        began = time.monotonic()
        self._parking.resume(self._parked["processes"], self._parked["sizes"], self.gpus, gpus or self.gpus, 2.0)
        self.gpus = gpus or self.gpus
        return time.monotonic() - began

    @property
    def bytes(self) -> int:
        return int(self._parked["bytes"])

    def family(self) -> list[Identity]:
        return family(self.pid, self._mark)

    def resident(self) -> int:
        """Bytes of host memory of its processes."""
        pages = 0
        for pid, _ in self.family():
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        self._parking.sweep(self.pid, self._mark, 1 << 62, freeze=True)
        self._process.kill()
        self._process.wait()


class Checks:
    """``python``: the interpreter of the users' frameworks; ``size``: bytes to park; ``cycles`` of the soak."""

    def __init__(self, python: str, size: int, cycles: int) -> None:
        self._python, self._size, self._cycles = python, size, cycles
        self._cuda, self._nvml = Cuda(), Nvml()
        self._parking = Parking(self._cuda, self._nvml, say)
        self._uuids = self._nvml.uuids()

    def gpus(self) -> list[dict[str, str]]:
        found = []
        for gpu in self._uuids:
            flags = {"mig": self._nvml.mig(gpu), "vgpu": self._nvml.vgpu(gpu), "mps": self._nvml.mps(gpu)}
            facts = Facts(driver=self._nvml.driver(), machine=platform.machine(), checkpoints=self._cuda.checkpoints, **flags)
            reached, reason = rung(facts)
            found.append({"uuid": gpu, "rung": str(reached), "reason": reason})
        return found

    def run(self, only: str = "") -> Iterator[dict[str, Any]]:
        for name, unit, check in (
            ("state survives", "", self._survives),
            ("as an unprivileged user", "uid", self._unprivileged),
            ("without persistence mode", "", self._persistence),
            ("left on the GPU", "bytes", self._residue),
            ("host memory taken", "bytes", self._host),
            ("parking", "bytes/s", self._park_rate),
            ("resuming", "bytes/s", self._resume_rate),
            ("data loader's workers live on", "processes", self._workers),
            ("moves to another GPU", "", self._moves),
            ("cycles without harm", "cycles", self._soak),
            ("killed after a resume", "seconds", self._killed),
            ("after a profiler", "", self._profiler),
            ("cache that is let go", "bytes", self._cache),
        ):
            if only and name != only:
                continue
            say({"check": name})
            try:
                ok, value, reason = check()
            except Impossible as exc:
                ok, value, reason = None, None, str(exc)
            except (DeviceError, DriverError, NvmlError, Lost, OSError) as exc:
                ok, value, reason = False, None, str(exc)
            yield {"name": name, "ok": ok, "value": value, "unit": unit, "reason": reason}

    # the checks: (ok, value, what there is to say)

    def _survives(self) -> tuple[bool, Any, str]:
        with self._patient() as patient:
            patient.park()
            patient.resume()
            same = patient.do("unharmed()")
            return same, same, "" if same else "the memory has changed"

    def _unprivileged(self) -> tuple[bool, Any, str]:
        if os.geteuid():
            with self._patient() as patient:
                patient.park()
                patient.resume()
                return bool(patient.do("unharmed()")), os.geteuid(), ""
        only = ["--only", "as an unprivileged user"]
        command = [sys.executable, "-m", "gateway.pod.cuda.checks", *only, "--size", str(self._size), "--python", self._python]
        try:
            done = subprocess.run(
                command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=PATIENCE
            )
            said = json.loads(done.stdout.splitlines()[-1])
            said = {"ok": said["ok"], "value": said["value"], "reason": said["reason"]}
        except (OSError, ValueError, LookupError, subprocess.TimeoutExpired) as exc:
            raise Impossible(f"run it as another user than root: as nobody it does not start here ({exc})") from None
        return said["ok"], said["value"], said["reason"]

    def _persistence(self) -> tuple[bool, Any, str]:
        if self._parking.cards.persistent():
            raise Impossible("persistence mode is on, which is the safer choice: nothing to check")
        return self._survives()

    def _residue(self) -> tuple[bool, Any, str]:
        with self._patient() as patient:
            patient.park()
            left = sum(self._parking.cards.used(patient.gpus).values()) - sum(patient.floor.values())
            return left < GIB // 4, max(0, left), "" if left < GIB // 4 else "more than a context stays on the GPU"

    def _host(self) -> tuple[bool, Any, str]:
        with self._patient() as patient:
            before = patient.resident()
            patient.park()
            taken = patient.resident() - before
            patient.resume()
            return True, taken, f"for {patient.bytes} bytes of GPU state; {patient.resident() - before} of them stay after the resume"

    def _park_rate(self) -> tuple[bool, Any, str]:
        with self._patient() as patient:
            seconds = patient.park()
            return True, int(patient.bytes / seconds), f"{patient.bytes} bytes in {seconds:.2f} s"

    def _resume_rate(self) -> tuple[bool, Any, str]:
        with self._patient() as patient:
            patient.park()
            seconds = patient.resume()
            return True, int(patient.bytes / seconds), f"{patient.bytes} bytes in {seconds:.2f} s"

    def _workers(self) -> tuple[bool, Any, str]:
        with self._patient("import torch; x = torch.ones(1 << 20, device='cuda')") as patient:
            patient.do(
                "loader = iter(torch.utils.data.DataLoader(torch.arange(1 << 12), batch_size=8, num_workers=2, persistent_workers=True))"
            )
            patient.do("next(loader) is None")
            count = len(patient.family())
            patient.park()
            patient.resume()
            same = patient.do("next(loader) is not None and bool(x.sum() == 1 << 20)")
            return same and len(patient.family()) == count, count - 1, ""

    def _moves(self) -> tuple[bool, Any, str]:
        if len(self._uuids) < 2:
            raise Impossible("there is one GPU here")
        first, second = self._uuids[:2]
        with self._patient(visible=[first, *self._uuids[1:]]) as patient:
            patient.park()
            patient.resume([second])
            seen, same = patient.do("where()"), patient.do("unharmed()")
            return seen == second and same, seen == second, "" if same else "the memory has changed"

    def _soak(self) -> tuple[bool, Any, str]:
        with self._patient() as patient:
            for cycle in range(self._cycles):
                patient.park()
                patient.resume()
                if not patient.do("unharmed()"):
                    return False, cycle, "the memory has changed"
            return True, self._cycles, ""

    def _killed(self) -> tuple[bool, Any, str]:
        with self._patient() as patient:
            patient.park()
            patient.resume()
            began, gpus, floor = time.monotonic(), patient.gpus, patient.floor
            patient.kill()
            self._parking.cards.empty(gpus, floor, set, listed=False)
            took = time.monotonic() - began
        with self._patient():
            return True, round(took, 3), "until the GPU was empty and the next program could begin"

    def _profiler(self) -> tuple[bool, Any, str]:
        with self._patient("import torch; x = torch.ones(1 << 20, device='cuda')") as patient:
            patient.do("p = torch.profiler.profile(activities=list(torch.profiler.supported_activities())); p.start(); x.sum(); p.stop()")
            patient.park()
            patient.resume()
            same = patient.do("bool(x.sum() == 1 << 20)")
            return same, same, ""

    def _cache(self) -> tuple[bool, Any, str]:
        with self._patient("import torch; x = torch.ones(1 << 28, device='cuda'); x = x[:1].clone()") as patient:
            used = sum(self._parking.cards.used(patient.gpus).values())
            patient.do("torch.cuda.empty_cache()")
            saved = used - sum(self._parking.cards.used(patient.gpus).values())
            return saved >= 1 << 28, saved, "that would have been carried along"

    @contextmanager
    def _patient(self, begin: str = "", visible: Optional[list[str]] = None) -> Iterator[Patient]:
        """A program with state on the first GPU. Raises ``Impossible`` where there is no room for it."""
        gpu = self._uuids[0]
        reached, reason = Rung(self.gpus()[0]["rung"]), self.gpus()[0]["reason"]
        if reached is Rung.EXCLUSIVE:
            raise Impossible(reason)
        if self._parking.cards.room(gpu) < needs(self._size + GIB):
            raise Impossible(f"GPU {gpu} has too little free memory: free some, or take a smaller --size")
        patient = Patient(self._parking, self._python, [gpu], visible)
        try:
            if begin:
                patient.do("import importlib.util; " + "T = importlib.util.find_spec('torch')")
                if not patient.do("T is not None"):
                    raise Impossible(f"{self._python} has no torch: name one that has by --python")
                patient.do(begin)
            else:
                patient.do(f"start(); fill({self._size})")
            yield patient
        finally:
            patient.kill()


def say(fields: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(fields).encode() + b"\n")
    except BrokenPipeError:
        pass  # whoever has read has gone; what was begun is brought to its end


def main(argv: Optional[list[str]] = None) -> int:
    """Prints the lines. 0: nothing was found that fails, 1: something was."""
    parser = argparse.ArgumentParser(
        prog="python -m gateway.pod.cuda.checks", description="What this node's driver does with parked state."
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter that has the users' frameworks (default: this one)")
    parser.add_argument("--size", type=int, default=GIB, help="bytes to park and resume (default: 1 GiB)")
    parser.add_argument("--cycles", type=int, default=20, help="of parking and resuming in a row (default: 20)")
    parser.add_argument("--only", default="", help="the name of one check")
    args = parser.parse_args(argv)
    try:
        checks = Checks(args.python, args.size, args.cycles)
    except (OSError, NvmlError) as exc:
        say({"gpus": []})
        say({"name": "driver", "ok": None, "value": None, "unit": "", "reason": f"no NVIDIA driver answers here: {exc}"})
        return 0
    say({"gpus": checks.gpus()})
    failed = False
    for check in checks.run(args.only):
        say(check)
        failed = failed or check["ok"] is False
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
