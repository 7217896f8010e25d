"""Spot nodes, by the labels that the profile names: kept off, avoided, or preferred. Pure.

It must never make a pod need a spot node: where there are none, it runs elsewhere.
"""

from __future__ import annotations

from typing import Any

from ..profiles import Profile

WEIGHT = 100  # of the preference, the most that Kubernetes takes


def never(pod: dict[str, Any], profile: Profile) -> None:
    """In each of the terms of which one has to hold."""
    unlike = _unlike(profile)
    if unlike:
        required = _node_affinity(pod).setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
        for term in required["nodeSelectorTerms"]:
            term["matchExpressions"] = [*term.get("matchExpressions", []), *unlike]


def avoid(pod: dict[str, Any], profile: Profile) -> None:
    """Where there is another node."""
    if profile.spot_nodes:
        term = {"weight": WEIGHT, "preference": {"matchExpressions": _unlike(profile)}}
        _node_affinity(pod).setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(term)


def prefer(pod: dict[str, Any], profile: Profile) -> None:
    if profile.spot_nodes:
        terms = [
            {"weight": WEIGHT, "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}}
            for label, value in profile.spot_nodes.items()
        ]
        _node_affinity(pod).setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).extend(terms)
        pod["tolerations"] = [*pod.get("tolerations", []), *map(dict, profile.spot_tolerations)]


def _unlike(profile: Profile) -> list[dict[str, Any]]:
    return [{"key": label, "operator": "NotIn", "values": [value]} for label, value in profile.spot_nodes.items()]


def _node_affinity(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    return found
