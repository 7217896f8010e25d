"""What NetworkPolicies mean, for clusters whose network doesn't enforce them: who may open a connection to which port. Pure.

Of a policy it knows what the chart writes: label selectors by ``matchLabels``, peers by pod and namespace, ports by number, range, name.
It must never take what it doesn't know for allowed: it raises ``NotImplementedError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True)
class World:
    """A cluster's policies, and the labels of its namespaces by name."""

    policies: Sequence[Object]
    namespaces: Mapping[str, Mapping[str, str]]

    def may_reach(self, source: Object, target: Object, port: int) -> bool:
        """Whether the pod ``source`` may open a TCP connection to a port of the pod ``target``."""
        return self._lets(source, target, target, port, "Egress") and self._lets(target, source, target, port, "Ingress")

    def _lets(self, who: Object, other: Object, target: Object, port: int, way: str) -> bool:
        """A pod that no policy of this way selects is open; else one rule of one policy has to let the other through."""
        binding = [
            each["spec"]
            for each in self.policies
            if each["metadata"]["namespace"] == who["metadata"]["namespace"]
            and selects(each["spec"]["podSelector"], who["metadata"]["labels"])
            and way in each["spec"]["policyTypes"]
        ]
        peers, field = ("from", "ingress") if way == "Ingress" else ("to", "egress")
        rules = [rule for spec in binding for rule in spec.get(field) or ()]
        return not binding or any(
            (not rule.get("ports") or any(_is(each, port, target) for each in rule["ports"]))
            and (not rule.get(peers) or any(self._peer(each, other, who["metadata"]["namespace"]) for each in rule[peers]))
            for rule in rules
        )

    def _peer(self, peer: Object, pod: Object, at_home: str) -> bool:
        if set(peer) - {"podSelector", "namespaceSelector"}:
            raise NotImplementedError(str(peer))
        namespace = pod["metadata"]["namespace"]
        there = peer.get("namespaceSelector")
        in_namespace = namespace == at_home if there is None else selects(there, self.namespaces[namespace])
        return in_namespace and selects(peer.get("podSelector") or {}, pod["metadata"]["labels"])


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    if set(selector) - {"matchLabels"}:
        raise NotImplementedError(str(selector))
    return (selector.get("matchLabels") or {}).items() <= labels.items()


def _is(rule: Object, port: int, target: Object) -> bool:
    first = rule["port"]
    if isinstance(first, str):
        named = [each for container in target["spec"]["containers"] for each in container.get("ports") or () if each.get("name") == first]
        return port in {each["containerPort"] for each in named}
    return first <= port <= rule.get("endPort", first) and rule.get("protocol", "TCP") == "TCP"
