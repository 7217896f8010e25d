"""On which nodes a pod of somebody else may be, as far as the pod itself says. Pure.

It must never say no where the scheduler could say yes: what it doesn't understand, it takes for met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .reasons import Pod

_KEEPS_OUT = ("NoSchedule", "NoExecute")
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def may_be_on(pod: Pod, node: Mapping[str, Any]) -> bool:
    """Its node selector, its required node affinity and its tolerations allow the node."""
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    if terms and not any(_met(term, labels, node["metadata"]["name"]) for term in terms):
        return False
    about = node.get("spec") or {}
    taints = [*(about.get("taints") or ()), *([_CORDON] if about.get("unschedulable") else [])]
    borne = spec.get("tolerations") or ()
    return all(any(_tolerates(each, taint) for each in borne) for taint in taints if taint.get("effect") in _KEEPS_OUT)


def _met(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """All of its requirements; one that says nothing is never met."""
    there = [*_requirements(term.get("matchExpressions"), labels), *_requirements(term.get("matchFields"), {"metadata.name": name})]
    return bool(there) and all(there)


def _requirements(said: Iterable[Mapping[str, Any]] | None, labels: Mapping[str, str]) -> list[bool]:
    return [_meets(labels.get(each.get("key", "")), each.get("operator", ""), each.get("values") or ()) for each in said or ()]


def _meets(value: str | None, operator: str, values: Iterable[str]) -> bool:
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None:
        try:
            number, [limit] = int(value), map(int, values)
        except ValueError:
            return False
        return number > limit if operator == "Gt" else number < limit
    return operator not in ("Gt", "Lt")


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")
