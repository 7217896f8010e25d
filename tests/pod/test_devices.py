"""Which device a supervisor has is decided by what the broker grants."""

from __future__ import annotations

import os
import subprocess

import pytest

from gateway.pod.devices import SuitedDevice
from gateway.pod.reactor import Reactor
from gateway.protocol.model import Rung, Spec

COSTS = {"park_seconds": 0.0, "seconds_per_gb": 0.0}


def device(simulated: dict[str, float] | None) -> SuitedDevice:
    """Of a kernel on a machine where nothing could be parked."""
    spec = Spec("k", ["python"], {}, "/tmp", "key", gpus=0, simulated=simulated)
    return SuitedDevice(spec, Reactor(), "NAME=value", lambda: None)


def test_a_kernel_born_where_nothing_is_simulated_can_be_parked_once_it_is_granted_a_simulated_gpu() -> None:
    found = device(None)
    assert found.probe()[0] is Rung.EXCLUSIVE
    found.suit(COSTS)
    assert found.probe() == (Rung.ANYWHERE, "simulated")


def test_a_grant_of_the_same_kind_leaves_the_device_and_what_lies_on_it() -> None:
    found = device(COSTS)
    before = found.simulated
    found.suit({"park_seconds": 9.0, "seconds_per_gb": 9.0})
    assert found.simulated is before


@pytest.mark.parametrize("parked", [False, True])
def test_what_was_simulated_is_no_state_of_a_real_gpu(parked: bool) -> None:
    found = device(COSTS)
    assert found.simulated is not None
    found.simulated._parked = parked
    found.suit(None)
    assert found.simulated is None
    assert not found.parked


@pytest.mark.parametrize("on_gpu", [True, False])
def test_what_a_kernel_leaves_on_a_simulated_gpu_is_ended_and_what_one_without_leaves_is_not(on_gpu: bool) -> None:
    left = subprocess.Popen(["sleep", "60"], env={"NAME": "value", "PATH": os.environ["PATH"]}, start_new_session=True)
    told: list[bool] = []
    device(COSTS).gone(1 << 30, on_gpu, lambda: told.append(True))
    try:
        assert told and (left.poll() is not None) is on_gpu
    finally:
        left.kill()
        left.wait()
