"""The ten checks find on the double's machine what is so there."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from gateway.cli import doctor
from gateway.pod.cuda import checks

from ..doubles.cuda import GIB, MIB, Effect, Op
from ..gpu.test_this_machine import CHECKS
from .cuda_rig import Rig, needs_double

pytestmark = needs_double
SIZE = 100 * MIB
with_room = pytest.mark.parametrize("rig", [{"gpus": 2, "memory": 4 * GIB}], indirect=True)


def examine(only: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "gateway.pod.cuda.checks", "--size", str(SIZE), "--cycles", "2", "--only", only]
    said: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)
    return said


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


def test_without_a_driver_the_checks_say_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "Cuda", missing)
    assert checks.main([]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["gpus"] == []
    assert "no NVIDIA driver answers here" in said["checks"][0]["reason"]


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
