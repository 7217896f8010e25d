"""The ten checks find on the double's machine what is so there."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.cli import doctor
from gateway.pod.cuda import checks
from gateway.protocol.errors import DeviceError

from ..doubles.cuda import GIB, MIB, Effect, Op
from ..gpu.test_this_machine import CHECKS
from .cuda_rig import Rig, needs_double

pytestmark = needs_double
SIZE = 100 * MIB
with_room = pytest.mark.parametrize("rig", [{"gpus": 2, "memory": 4 * GIB}], indirect=True)


def examine(only: str = "") -> dict[str, Any]:
    return doctor.examine(sys.executable, SIZE, cycles=2, only=only, patience=60.0)


@with_room
def test_on_a_good_machine_nothing_fails_and_what_was_not_tried_says_why(rig: Rig) -> None:
    said = examine()
    assert [gpu["rung"] for gpu in said["gpus"]] == ["anywhere"] * 2
    assert tuple(check["name"] for check in said["checks"]) == CHECKS
    assert not [check for check in said["checks"] if check["ok"] is False]
    assert all(check["reason"] for check in said["checks"] if check["ok"] is None)
    seen = {check["name"]: check["value"] for check in said["checks"]}
    assert (seen["left on the GPU"], seen["cycles without harm"], seen["moves to another GPU"]) == (0, 2, True)
    assert rig.node.used(0) == rig.node.used(1) == 0


@with_room
def test_a_map_that_is_ignored_fails_the_check(rig: Rig) -> None:
    rig.node.set(migrates=0)
    (check,) = examine("moves to another GPU")["checks"]
    assert check["ok"] is False
    assert "did not" in check["reason"]


@with_room
def test_a_driver_that_refuses_fails_the_check_and_nothing_stays_on_the_gpu(rig: Rig) -> None:
    with rig.node.fault(Op.CHECKPOINT, 801, Effect.ANSWER):
        (check,) = examine("state survives")["checks"]
    assert check["ok"] is False
    assert "not supported" in check["reason"]
    assert rig.node.used() == 0


@with_room
def test_a_driver_that_hangs_is_told_with_its_place_and_with_what_was_seen_before(rig: Rig) -> None:
    with rig.node.fault(Op.RESTORE, 0, Effect.HANG, skip=1):
        said = doctor.examine(sys.executable, SIZE, cycles=1, patience=3.0)
    first, *_, last = said["checks"]
    assert (first["ok"], last["ok"], len(said["gpus"])) == (True, False, 2)
    assert "restore of process" in last["reason"]
    assert len(said["checks"]) < len(CHECKS)
    rig.wait(lambda: rig.node.used() == 0)  # it ends by itself once the driver has come back


@with_room
def test_checks_that_are_killed_are_told_with_what_was_seen_before(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = doctor._lines

    def kill_in_the_middle(fd: int, patience: float) -> Iterator[dict[str, Any] | None]:
        for line in lines(fd, patience):
            yield line
            if line and line.get("check") == "left on the GPU":
                children = Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
                checks = [int(pid) for pid in children if b"cuda.checks" in Path(f"/proc/{pid}/cmdline").read_bytes()]
                os.kill(checks[-1], signal.SIGKILL)

    monkeypatch.setattr(doctor, "_lines", kill_in_the_middle)
    said = examine()
    assert said["checks"][-1]["ok"] is False
    assert "ended in the middle (exit status -9)" in said["checks"][-1]["reason"]
    assert said["checks"][0]["ok"] is True


class NoParking:
    """Of a program without a GPU."""

    cards = SimpleNamespace(used=lambda gpus: {})

    def sweep(self, *arguments: object, freeze: bool) -> None:
        pass


def test_a_program_that_stays_blocked_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = checks.Patient(NoParking(), sys.executable, [])  # type: ignore[arg-type]
    assert patient.do("1 + 1") == 2
    monkeypatch.setattr(checks, "PATIENCE", 0.2)
    with pytest.raises(DeviceError, match="has not come back from"):
        patient.do("__import__('time').sleep(60)")
    patient.kill()
    with pytest.raises(checks.Impossible, match="it has ended"):
        patient.do("1 + 1")


@pytest.mark.parametrize("rig", [{"driver": "550.54.15", "cuda": 12040, "memory": 4 * GIB}], indirect=True)
def test_under_an_old_driver_nothing_is_tried(rig: Rig) -> None:
    said = examine()
    assert said["gpus"][0]["rung"] == "exclusive"
    assert {check["ok"] for check in said["checks"]} == {None}


@with_room
def test_a_full_gpu_is_left_alone(rig: Rig) -> None:
    rig.node.set_gpu(0, foreign=3 * GIB)
    (check,) = examine("state survives")["checks"]
    assert check["ok"] is None
    assert "too little free memory" in check["reason"]


def test_without_a_driver_the_checks_say_so(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "Cuda", missing)
    assert checks.main([]) == 0
    gpus, check = map(json.loads, capfd.readouterr().out.splitlines())
    assert gpus == {"gpus": []}
    assert "no NVIDIA driver answers here" in check["reason"]


def missing() -> None:
    raise OSError("libcuda.so.1: cannot open shared object file")


def test_the_doctor_prints_a_table_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "gpus": [{"uuid": "GPU-1", "rung": "same-gpu", "reason": "driver 575"}],
        "checks": [
            {"name": "parking", "ok": True, "value": 8_600_000_000, "unit": "bytes/s", "reason": ""},
            {"name": "moves", "ok": False, "value": None, "unit": "", "reason": "it did not"},
            {"name": "torch", "ok": None, "value": None, "unit": "", "reason": "none here"},
        ],
    }
    monkeypatch.setattr(doctor, "examine", lambda *args: said)
    assert doctor.run(arguments()) == 1
    shown = capsys.readouterr().out
    assert "resumes on this one" in shown
    assert "8.6 GB/s" in shown
    assert "FAILS" in shown
    assert "not tried" in shown
    assert doctor.run(arguments("--json")) == 1
    assert json.loads(capsys.readouterr().out) == said


def arguments(*argv: str) -> Any:
    import argparse

    parser = argparse.ArgumentParser()
    doctor.arguments(parser)
    return parser.parse_args(argv)


def test_the_doctor_knows_amounts_of_memory() -> None:
    assert arguments("--size", "4GB").size == 4 * 10**9
    assert arguments("--size", "500mb").size == 5 * 10**8
    with pytest.raises(SystemExit):
        arguments("--size", "much")
