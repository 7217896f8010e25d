"""On which nodes a pod of others may be."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backends.kubernetes.fit import may_be_on

NODE = {
    "metadata": {"name": "n1", "labels": {"gpu": "a100", "size": "8"}},
    "spec": {
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]
    },
}
BEARS = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def pod(*terms: dict[str, Any], tolerations: list[dict[str, Any]] | None = None, selector: dict[str, str] | None = None) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {
        "metadata": {"name": "p"},
        "spec": {
            "tolerations": [BEARS] if tolerations is None else tolerations, "nodeSelector": selector,
            "affinity": {"nodeAffinity": required} if terms else None,
        },
    }  # fmt: skip


def says(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("asks", "fits"),
    [
        (pod(), True),
        (pod(selector={"gpu": "a100"}), True),
        (pod(selector={"gpu": "t4"}), False),
        (pod(says("gpu", "In", "t4", "a100")), True),
        (pod(says("gpu", "In", "t4")), False),
        (pod(says("gpu", "In", "t4"), says("size", "Gt", "4")), True),  # either will do
        (pod(says("gpu", "NotIn", "a100")), False),
        (pod(says("zone", "NotIn", "x")), True),
        (pod(says("gpu", "Exists")), True),
        (pod(says("zone", "Exists")), False),
        (pod(says("zone", "DoesNotExist")), True),
        (pod(says("size", "Lt", "8")), False),
        (pod(says("size", "Gt", "many")), False),
        (pod(says("gpu", "Resembles", "a100")), True),  # not understood: the scheduler knows better
        (pod({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), True),
        (pod({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), False),
        (pod({}), False),
        (pod(tolerations=[]), False),
        (pod(tolerations=[{"operator": "Exists"}]), True),
        (pod(tolerations=[{"key": "nvidia.com/gpu", "value": "present"}]), True),
        (pod(tolerations=[{"key": "nvidia.com/gpu", "value": "absent"}]), False),
        (pod(tolerations=[{**BEARS, "effect": "NoExecute"}]), False),
    ],
)
def test_selector_affinity_and_tolerations_say_which_nodes_will_do(asks: dict[str, Any], fits: bool) -> None:
    assert may_be_on(asks, NODE) is fits


def test_a_cordoned_node_is_for_who_bears_that() -> None:
    cordoned = {**NODE, "spec": {"unschedulable": True}}
    assert not may_be_on(pod(), cordoned)
    assert may_be_on(pod(tolerations=[{"operator": "Exists"}]), cordoned)
    assert may_be_on(pod(), {"metadata": {"name": "bare"}})
