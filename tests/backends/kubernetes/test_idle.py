"""For how many workers there are GPUs that no pod has asked for."""

from __future__ import annotations

from typing import Any

from gateway.backends.kubernetes.jobs.idle import workers

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": fields.pop("labels", {})}, "spec": fields, "status": {"allocatable": {GPU: str(gpus)}},
    }  # fmt: skip


def pod(where: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    containers = [{"resources": {"limits": {GPU: str(gpus)}}}, {"resources": {}}]
    return {"metadata": {}, "spec": {"containers": containers, **({"nodeName": where} if where else {})}, "status": {"phase": phase}}


def room(nodes: list[Any], pods: list[Any], each: int = 1, **more: Any) -> int:
    return workers(nodes, pods, GPU, each, more.pop("selector", {}), **more)


def test_what_running_pods_have_asked_for_is_not_idle_and_what_ended_ones_had_is() -> None:
    assert room([node("a", 4), node("b", 2)], [pod("a", 3), pod("b", 2, "Succeeded")]) == 3


def test_a_worker_needs_all_of_its_gpus_on_one_node() -> None:
    assert room([node("a", 3), node("b", 3)], [], each=2) == 2


def test_what_pods_without_a_node_wait_for_is_theirs() -> None:
    assert room([node("a", 2)], [pod("", 1, "Pending")]) == 1
    assert room([node("a", 2)], [pod("", 8, "Pending")]) == 0


def test_nodes_that_would_not_do_have_no_room() -> None:
    nodes = [node("a", 1, labels={"pool": "gpu"}), node("b", 1), node("c", 1, labels={"pool": "gpu"}, unschedulable=True)]
    assert room(nodes, [], selector={"pool": "gpu"}) == 1
    assert room(nodes, [], selector={"pool": "gpu"}, drained={"a"}) == 0
