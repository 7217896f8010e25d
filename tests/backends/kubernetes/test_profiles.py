"""What administrators may say of pods, and what is left to those who ask for a kernel."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backends.kubernetes.profiles import Profile, chosen, profiles, quantity
from gateway.protocol.errors import BadRequest, SettingError


def made(**fields: Any) -> Profile:
    return profiles({"small": {"image": "example/kernel:1", **fields}})["small"]


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("500m", 0.5), ("1Gi", 1 << 30), ("1.5Gi", 3 << 29), ("2G", 2 * 10**9), ("128Mi", 128 << 20)]
)
def test_quantities_are_read_as_the_cluster_reads_them(text: str, number: float) -> None:
    assert float(quantity(text)) == number


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"image": ""}, "image is missing"),
        ({"imgae": "x"}, "no field 'imgae'"),
        ({"memory": "lots"}, "memory is 'lots'"),
        ({"memory": 2}, "must be text"),
        ({"gpus": "1"}, "must be a whole number"),
        ({"gpus": True}, "must be a whole number"),
        ({"env": ["A=1"]}, "must be a dictionary"),
        ({"gpu_sees": "magic"}, "must be one of runtime, claim, life"),
        ({"gpu_sees": "claim"}, "gpu_claim is missing"),
        ({"run_as_user": 0}, "never run as root"),
        ({"volumes": [{"name": "home", "mount_path": "/home"}]}, "one source"),
        ({"volumes": [{"name": "a", "mount_path": "/a", "emptyDir": {}, "hostPath": {}}]}, "one source"),
        ({"volumes": 2 * [{"name": "a", "mount_path": "/a", "emptyDir": {}}]}, "a name of its own"),
        ({"volumes": [{"name": "elastic-code", "mount_path": "/a", "emptyDir": {}}]}, "doesn't begin with elastic-"),
        ({"volumes": [{"name": "a", "mount_path": "/run/elastic/spec", "emptyDir": {}}]}, "the gateway's own"),
        ({"gpu_resource": "gpu"}, "a resource such as nvidia.com/gpu"),
        ({"overrides": {"KERNEL_NAMESPACE": ["x"]}}, "can't be left to clients"),
    ],
)
def test_what_can_not_hold_is_named_when_the_gateway_starts(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        profiles({"small": {"image": "example/kernel:1", **fields}})
    assert "profiles['small']" in str(caught.value)


@pytest.mark.parametrize("setting", [{}, {"Odd Name": {"image": "x"}}, {"a": "x"}])
def test_profiles_that_are_none_stop_the_start(setting: Any) -> None:
    with pytest.raises(SettingError, match=r"KubernetesBackend\.profiles"):
        profiles(setting)


def test_parkable_memory_comes_on_top_of_the_limit() -> None:
    assert made(memory="2Gi", parkable_memory="16Gi").memory_bytes == 18 << 30


def test_a_request_changes_what_its_profile_leaves_open_and_nothing_else() -> None:
    profile = made(overrides={"KERNEL_IMAGE": ["example/*:2"], "KERNEL_MEMORY": "8Gi"})
    env = {"KERNEL_IMAGE": "example/kernel:2", "KERNEL_MEMORY": "4Gi", "KERNEL_NAMESPACE": "kube-system", "KERNEL_VOLUMES": "[]"}
    assert chosen(profile, env) == made(image="example/kernel:2", memory="4Gi", overrides=profile.overrides)
    assert chosen(profile, {"KERNEL_IMAGE": ""}) == profile


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"KERNEL_IMAGE": "evil/miner:1"}, "lets in example/"),
        ({"KERNEL_MEMORY": "9Gi"}, "at most 8Gi"),
        ({"KERNEL_MEMORY": "0"}, "at most 8Gi"),
        ({"KERNEL_MEMORY": "1Gi}, privileged: true"}, "must be a quantity"),
        ({"KERNEL_CPU": "2"}, "can't be chosen"),
    ],
)
def test_a_wish_that_goes_too_far_is_refused_with_what_would_do(env: dict[str, str], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        chosen(made(overrides={"KERNEL_IMAGE": ["example/*"], "KERNEL_MEMORY": "8Gi"}), env)
