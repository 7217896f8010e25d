"""Which pods of others wait for what our slots could have."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backends.base import Foreign
from gateway.backends.kubernetes.pressure import waits

GPU = "nvidia.com/gpu"
NODES = {
    ("", name): {"metadata": {"name": name, "labels": {"pool": pool}}, "status": {"allocatable": {GPU: count}}}
    for name, pool, count in (("a", "x", "1"), ("b", "x", "4"), ("c", "y", "0"))
}


def pod(*requests: str, reason: str = "Unschedulable", selector: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason}
    return {
        "metadata": {"namespace": "team", "name": "job-1", **metadata},
        "spec": {"containers": [{"resources": {"limits": {GPU: each}}} for each in requests], "nodeSelector": selector},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def test_a_pod_that_finds_no_gpu_waits_for_those_of_the_nodes_that_have_enough() -> None:
    assert waits(pod("1"), [GPU], NODES) == Foreign("pod team/job-1", 1, ("a", "b"), GPU)
    assert waits(pod("1", "1"), [GPU], NODES) == Foreign("pod team/job-1", 2, ("b",), GPU)
    assert waits(pod("1", selector={"pool": "y"}), [GPU], NODES) == Foreign("pod team/job-1", 1, (), GPU)


@pytest.mark.parametrize(
    "other", [pod("0"), pod(), pod("1", reason="SchedulingGated"), pod("1", deletionTimestamp="2026-01-01T00:00:00Z"), pod("some")]
)
def test_whoever_waits_for_something_else_is_left_out(other: dict[str, Any]) -> None:
    assert waits(other, [GPU], NODES) is None


def test_a_resource_that_no_profile_leases_is_nobody_of_ours() -> None:
    assert waits(pod("1"), ["amd.com/gpu"], NODES) is None
