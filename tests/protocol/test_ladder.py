"""What a driver can do for a parked kernel, and why not more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.protocol.ladder import Facts, rung, version
from gateway.protocol.model import Rung

MODERN = Facts(driver="580.65.06")


def test_a_modern_driver_resumes_anywhere_on_the_node() -> None:
    assert rung(MODERN) == (Rung.ANYWHERE, "")


@pytest.mark.parametrize(
    ("facts", "expected", "said"),
    [
        (Facts(), Rung.EXCLUSIVE, "no NVIDIA driver answers"),
        (Facts(driver="550.54.15"), Rung.EXCLUSIVE, "needs 575.57.08 or newer"),
        (Facts(driver="570.158.01"), Rung.EXCLUSIVE, "needs 575.57.08 or newer"),
        (Facts(driver="575.51.03"), Rung.EXCLUSIVE, "needs 575.57.08 or newer"),
        (Facts(driver="575.57.08"), Rung.SAME_GPU, "another GPU needs 580 or newer"),
        (replace(MODERN, machine="aarch64"), Rung.EXCLUSIVE, "aarch64"),
        (replace(MODERN, mig=True), Rung.EXCLUSIVE, "MIG"),
        (replace(MODERN, vgpu=True), Rung.EXCLUSIVE, "vGPU"),
        (replace(MODERN, mps=True), Rung.EXCLUSIVE, "MPS"),
        (replace(MODERN, checkpoints=False), Rung.EXCLUSIVE, "no checkpoint calls"),
        (Facts(driver="575.64.03", count=2), Rung.EXCLUSIVE, "parking 2 GPUs at once needs 580"),
        (replace(MODERN, count=2), Rung.ANYWHERE, ""),
        (replace(MODERN, masked=True), Rung.SAME_GPU, "visible_devices"),
        (replace(MODERN, keeps="it uses managed memory"), Rung.EXCLUSIVE, "managed memory"),
        (replace(MODERN, stays="the map was ignored"), Rung.SAME_GPU, "ignored"),
    ],
)
def test_each_obstacle_lands_on_its_rung_with_the_reason(facts: Facts, expected: Rung, said: str) -> None:
    reached, reason = rung(facts)
    assert reached is expected
    assert said in reason


def test_driver_versions_are_compared_as_numbers() -> None:
    assert version("575.57.08") == (575, 57, 8) < version("575.144.3") < version("580.1")
    assert version("") == version("unknown") == ()
