"""Warm kernels give way where that makes room, and nowhere else."""

from __future__ import annotations

from typing import Any

from gateway.backends.kubernetes.room import makes_room, wants_room


def pod(name: str, cpu: str = "1", memory: str = "1Gi", node: str = "", born: int = 0, **selector: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}], "nodeSelector": selector}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:{born:02}Z"}, "spec": spec, "status": {}}


def waiting(words: str, **fields: Any) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    return {**pod("kernel", **fields), "status": {"phase": "Pending", "conditions": [condition]}}


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


def test_who_waits_for_a_full_node_wants_room() -> None:
    assert wants_room(waiting("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match."))
    assert wants_room(waiting("0/1 nodes are available: 1 Too many pods."))


def test_who_has_a_node_or_waits_for_something_else_does_not() -> None:
    assert not wants_room(pod("kernel", node="a"))
    assert not wants_room(waiting("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."))
    leaving = waiting("1 Insufficient cpu")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert not wants_room(leaving)


def test_as_few_as_make_the_room_go_the_youngest_first() -> None:
    kernel = waiting("1 Insufficient cpu", cpu="1500m", memory="1Gi")
    warm = [pod(f"w{n}", node="a", born=n) for n in range(3)]
    assert names(makes_room(kernel, warm)) == ["w2", "w1"]
    assert names(makes_room(kernel, [*warm, pod("large", cpu="2", node="b")])) == ["large"]


def test_none_goes_where_it_would_not_help() -> None:
    kernel = waiting("1 Insufficient cpu", cpu="2", memory="1Gi")
    assert makes_room(kernel, []) == []
    assert makes_room(kernel, [pod("small", cpu="100m", node="a")]) == []
    assert makes_room(kernel, [pod("one", node="a"), pod("two", node="b")]) == [], "each on a node of its own"
    assert makes_room(kernel, [pod("nowhere", cpu="4")]) == []
    assert makes_room(waiting("1 Insufficient memory", cpu="1", memory="2Gi"), [pod("lean", cpu="8", node="a")]) == []


def test_none_goes_from_a_node_that_may_not_do() -> None:
    kernel = waiting("1 Insufficient cpu", zone="north")
    assert makes_room(kernel, [pod("elsewhere", node="a")]) == []
    assert names(makes_room(kernel, [pod("there", node="a", zone="north", disk="fast")])) == ["there"]
