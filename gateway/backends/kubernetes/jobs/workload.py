"""What Kueue says of a Job, by the conditions of its Workload. Pure.

It must never guess: Kueue's own sentences are shown as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# In this order: what has happened counts over what is still missing.
_TAKING = (("Evicted", "True"), ("Preempted", "True"))
_TELLING = (*_TAKING, ("QuotaReserved", "False"), ("PodsReady", "False"))


def told(workloads: Iterable[Mapping[str, Any]]) -> str:
    """Of all Workloads of one Job: an elastic one has several, of which the unfinished counts. "" where nothing is in its way."""
    return _first(workloads, _TELLING)


def taken(workloads: Iterable[Mapping[str, Any]]) -> str:
    """Of one Job's, why its pods were taken away; "" where they were not, or have been let go again since."""
    return _first(workloads, _TAKING)


def _first(workloads: Iterable[Mapping[str, Any]], telling: Iterable[tuple[str, str]]) -> str:
    for each in workloads:
        conditions = {found.get("type"): found for found in each.get("status", {}).get("conditions") or ()}
        if conditions.get("Finished", {}).get("status") == "True":
            continue
        for kind, status in telling:
            found = conditions.get(kind, {})
            admitted = conditions.get("Admitted", {}).get("status") == "True"  # while it is evicted, until its pods have ended
            if found.get("status") == status and (kind != "PodsReady" or not admitted):
                return str(found.get("message") or found.get("reason") or "")
    return ""
