"""What this node can do with parked GPU state, proved where there is a GPU: ten checks, each tried on a program of its own.

The checks run in a process of their own, as a driver may hang or crash the one that asks it; nothing here may load a driver.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from . import show

SECONDS = 600.0  # for one step of a check; a driver that hangs takes for ever
RUNGS = {"anywhere": "resumes anywhere", "same-gpu": "resumes on this one", "exclusive": "can't park"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON: gpus and checks")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has the users' frameworks (default: this one)")
    parser.add_argument("--size", type=_bytes, default=1 << 30, help="memory to park and resume, as 500MB or 4GB (default: 1 GiB)")
    parser.add_argument("--cycles", type=int, default=20, help="of parking and resuming in a row (default: 20)")


def run(args: argparse.Namespace) -> int:
    """0: nothing fails, 1: a check does. What can't be tried here is said and fails nothing."""
    said = examine(args.python, args.size, args.cycles)
    if args.json:
        show.as_json(said)
    else:
        show.table(
            ("GPU", "WHEN PARKED", "WHY NOT MORE"),
            [(gpu["uuid"], RUNGS.get(gpu["rung"], gpu["rung"]), gpu["reason"]) for gpu in said["gpus"]],
            none="No GPU of NVIDIA's is to be seen here. Simulated ones need no check: ElasticGateway.simulated_gpus.",
        )
        print()
        show.table(("CHECK", "", "SEEN", "REMARK"), [_row(check) for check in said["checks"]], none="Nothing could be checked.")
    return 1 if any(check["ok"] is False for check in said["checks"]) else 0


def examine(python: str, size: int, cycles: int, only: str = "", patience: float = SECONDS) -> dict[str, Any]:
    """``{"gpus": [...], "checks": [...]}``; where the checks themselves don't come to an end, the last one says where they were. ``size``:
    bytes; ``only``: the name of one check; ``patience``: seconds for each step."""
    command = [sys.executable, "-m", "gateway.pod.cuda.checks", "--python", python, "--size", str(size), "--cycles", str(cycles)]
    process = subprocess.Popen([*command, "--only", only], stdout=subprocess.PIPE)
    said: dict[str, Any] = {"gpus": [], "checks": []}
    check, step = "driver", "the driver's start"
    assert process.stdout
    with process.stdout:
        for line in _lines(process.stdout.fileno(), patience):
            if line is None:
                hangs = f"the driver has not come back from this within {patience:g} s: {step}. This node should not park anything; process"
                return _broken(said, check, f"{hangs} {process.pid} is left as it is, because killing it could make things worse")
            if "name" in line:
                said["checks"].append(line)
            else:
                said["gpus"] = line.get("gpus", said["gpus"])
                check = line.get("check", check)
                step = f"{line['step']} of process {line['pid']}" if "step" in line else step
    if process.wait() not in (0, 1):
        return _broken(
            said, check, f"the checks ended in the middle (exit status {process.returncode}): this node should not park anything"
        )
    return said


def _lines(fd: int, patience: float) -> Iterator[dict[str, Any] | None]:
    """The objects that come, until the end; None: nothing more for so many seconds."""
    rest = b""
    while select.select([fd], [], [], patience)[0]:
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)
    yield None


def _broken(said: dict[str, Any], check: str, reason: str) -> dict[str, Any]:
    said["checks"].append({"name": check, "ok": False, "value": None, "unit": "", "reason": reason})
    return said


def _row(check: dict[str, Any]) -> tuple[str, str, str, str]:
    mark = {True: "ok", False: "FAILS", None: "not tried"}[check["ok"]]
    return check["name"], mark, _amount(check["value"], check["unit"]), check["reason"]


def _amount(value: Any, unit: str) -> str:
    if value is None or isinstance(value, bool):
        return ""
    if unit == "bytes":
        return show.size(value)
    if unit == "bytes/s":
        return f"{show.size(value)}/s"
    return f"{value} {unit}".strip()


def _bytes(text: str) -> int:
    units = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
    number = text.lower().removesuffix("b")
    unit = number[-1:] if number[-1:] in units else ""
    try:
        return int(float(number.removesuffix(unit)) * units[unit])
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} isn't an amount of memory such as 500MB or 4GB") from None
