"""Which warm kernels give way to kernels that find no room. Pure.

It must never give one up where that can't help: what goes has to make all the room that is needed, on a node that will do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from . import reasons
from .profiles import quantity
from .reasons import Pod

_FULL = ("Insufficient ", "Too many pods")  # in the scheduler's words: a node would do if there were less on it
_COUNTED = ("cpu", "memory")


def wants_room(pod: Pod) -> bool:
    """It has no node, because those that would do are full."""
    trouble = reasons.trouble(pod)
    waits = trouble is not None and trouble.reason == "unschedulable" and not pod["metadata"].get("deletionTimestamp")
    return bool(waits and any(word in trouble.words for word in _FULL))  # type: ignore[union-attr]


def makes_room(pod: Pod, warm: Iterable[Pod]) -> list[Pod]:
    """The fewest of the ``warm`` pods of one node without which ``pod`` would fit there; [] where there are none."""
    needs, selector = _requests(pod), (pod["spec"].get("nodeSelector") or {}).items()
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for each in warm:
        if each["spec"].get("nodeName") and selector <= (each["spec"].get("nodeSelector") or {}).items():
            by_node[each["spec"]["nodeName"]].append(each)
    found: list[list[Pod]] = []
    for _, there in sorted(by_node.items()):
        left, chosen = dict(needs), []
        for each in sorted(there, key=lambda each: str(each["metadata"].get("creationTimestamp", "")), reverse=True):
            chosen.append(each)
            left = {name: amount - _requests(each)[name] for name, amount in left.items()}
            if all(amount <= 0 for amount in left.values()):
                found.append(chosen)
                break
    return min(found, key=len, default=[])


def _requests(pod: Pod) -> dict[str, float]:
    """Cores and bytes that the scheduler counts for it; its init container needs less."""
    containers = [each.get("resources", {}).get("requests") or {} for each in pod["spec"].get("containers") or ()]
    return {name: float(sum(quantity(str(each.get(name, "0"))) for each in containers)) for name in _COUNTED}
