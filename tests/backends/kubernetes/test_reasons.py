"""Why a pod doesn't run, told in the cluster's words and ours."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backends.kubernetes.reasons import over, running, trouble


def pod(phase: str = "Pending", **status: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "kernel", "resources": {"limits": {"memory": str(2 << 30)}}}]}
    return {"metadata": {"name": "kernel-1", "uid": "u"}, "spec": spec, "status": {"phase": phase, **status}}


def container(state: dict[str, Any], name: str = "kernel") -> list[dict[str, Any]]:
    return [{"name": name, "image": "example/kernel:9", "state": state}]


def waiting(reason: str, message: str = "said so") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(reason: str, code: int) -> dict[str, Any]:
    return {"terminated": {"reason": reason, "exitCode": code}}


UNSCHEDULABLE = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: 2 Insufficient nvidia.com/gpu."}
]
REAL = (
    "0/2 nodes are available: 1 Insufficient example.com/gpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    " no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
)
DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "node is gone"}]


@pytest.mark.parametrize(
    ("seen", "reason", "final", "said"),
    [
        (pod(conditions=UNSCHEDULABLE), "unschedulable", False, "2 Insufficient nvidia.com/gpu"),
        (pod(containerStatuses=container(waiting("ErrImagePull", "not found"))), "image", False, "example/kernel:9"),
        (pod(containerStatuses=container(waiting("ImagePullBackOff"))), "image", True, "pull_secrets"),
        (pod(containerStatuses=container(waiting("ErrImageNeverPull"))), "image", True, "ErrImageNeverPull"),
        (pod(containerStatuses=container(waiting("InvalidImageName"))), "image", True, "InvalidImageName"),
        (pod(containerStatuses=container(waiting("CreateContainerConfigError", "runAsNonRoot"))), "container", True, "runAsNonRoot"),
        (pod(initContainerStatuses=container(ended("Error", 1), "mesh")), "init", True, "Ask who adds it"),
        (pod("Failed", containerStatuses=container(ended("OOMKilled", 137))), "oom", True, "2.0 GiB"),
        (pod("Failed", reason="Evicted", message="low on memory"), "evicted", True, "low on memory"),
        (pod("Failed", containerStatuses=container(ended("Error", 3))), "exited", True, "exit code 3"),
        (pod("Failed", reason="NodeShutdown", message="shutting down"), "node_lost", True, "shutting down"),
        (pod("Failed", conditions=DISRUPTED), "disrupted", True, "node is gone"),
        (pod("Failed"), "failed", True, "gives no reason"),
        (pod("Succeeded"), "ended", True, "has ended"),
    ],
)
def test_the_reason_is_named(seen: dict[str, Any], reason: str, final: bool, said: str) -> None:
    found = trouble(seen)
    assert found is not None
    assert (found.reason, found.final) == (reason, final)
    assert said in found.message


@pytest.mark.parametrize(
    "seen",
    [
        pod(),
        {"metadata": {}, "spec": {}},
        pod(containerStatuses=container(waiting("ContainerCreating"))),
        pod(containerStatuses=container(waiting("PodInitializing"))),
        pod("Running", containerStatuses=container({"running": {}})),
    ],
)
def test_a_pod_that_comes_up_has_no_trouble(seen: dict[str, Any]) -> None:
    assert trouble(seen) is None
    assert not over(seen)


def test_a_pod_that_was_deleted_while_it_ran_is_told_so() -> None:
    seen = pod("Running", containerStatuses=container({"running": {}}))
    seen["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = trouble(seen)
    assert found is not None
    assert found.reason == "deleted"
    assert running(seen)
    assert not over(seen)


def test_a_pod_that_was_deleted_and_killed_after_its_grace_is_told_to_have_been_deleted() -> None:
    seen = pod("Failed", containerStatuses=container(ended("Error", 137)))
    seen["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = trouble(seen)
    assert found is not None
    assert found.reason == "deleted"


def test_of_what_the_scheduler_says_only_what_is_missing_is_told() -> None:
    told = trouble(pod(conditions=[{**UNSCHEDULABLE[0], "message": REAL}]))
    assert told is not None
    assert told.words == "0/2 nodes are available: 1 Insufficient example.com/gpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]"
    assert "preemption" not in told.message
