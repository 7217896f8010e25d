"""What goes over a line as JSON, and comes back from a version that knows more or less."""

from __future__ import annotations

from dataclasses import asdict

from gateway.protocol.model import KernelState, LeaseState, Spec


def test_a_state_goes_whole_with_its_lease_and_comes_back_the_same() -> None:
    state = KernelState("k", ready=True, connection={"ip": "::1"}, lease=LeaseState("HOLDING", ["u1"], order=[7, 2]))
    assert state.to_json() == asdict(state)
    assert KernelState.from_json(state.to_json()) == state
    told = state.to_json()
    told["lease"]["phase"] = told["execution_state"] = "else"
    assert (state.lease.phase, state.execution_state) == ("HOLDING", "starting")


def test_what_a_newer_version_says_more_is_left_out_and_what_an_older_one_says_less_is_as_by_default() -> None:
    spec = Spec.from_json({"kernel_id": "k", "argv": ["a"], "env": {}, "cwd": "/", "key": "s", "from_the_future": 1})
    assert (spec.kernel_id, spec.gpus) == ("k", 1)
    state = KernelState.from_json({"lease": {"phase": "COLD", "from_the_future": 1}, "from_the_future": 1})
    assert state == KernelState()
