"""What people are shown of a Job that waits in Kueue, by the conditions that Kueue was seen to give."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backends.kubernetes.jobs.workload import taken, told


def workload(**conditions: tuple[str, str]) -> dict[str, Any]:
    return {
        "status": {"conditions": [{"type": kind, "status": status, "message": message} for kind, (status, message) in conditions.items()]}
    }


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"QuotaReserved": ("False", "insufficient unused quota for nvidia.com/gpu in flavor gpu, 2 more needed")}, "2 more needed"),
        ({"QuotaReserved": ("False", "LocalQueue nope doesn't exist")}, "LocalQueue nope doesn't exist"),
        ({"QuotaReserved": ("True", "Quota reserved"), "Admitted": ("True", "The workload is admitted")}, ""),
        (
            {
                "Evicted": ("True", "Preempted to accommodate a workload"),
                "QuotaReserved": ("False", "Preempted to accommodate a workload"),
            },
            "Preempted to accommodate",
        ),
        (
            {"Evicted": ("True", "Preempted to accommodate a workload"), "Admitted": ("True", "until its pods end")},
            "Preempted to accommodate",
        ),
        ({"Evicted": ("False", "Previously: Preempted"), "Admitted": ("True", "admitted again")}, ""),
        ({"PodsReady": ("False", "Not all pods are ready"), "Admitted": ("True", "admitted")}, ""),
        ({}, ""),
    ],
)
def test_kueues_own_words_are_told(conditions: dict[str, tuple[str, str]], said: str) -> None:
    found = told([workload(**conditions)])
    assert said in found and bool(said) == bool(found)


def test_a_workload_that_was_replaced_by_another_slice_says_nothing() -> None:
    old = workload(Finished=("True", "Replaced"), QuotaReserved=("False", "of the old one"))
    assert told([old, workload(QuotaReserved=("False", "of the new one"))]) == "of the new one"


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"Evicted": ("True", "Preempted to accommodate a workload"), "QuotaReserved": ("False", "Preempted")}, "Preempted to accommodate"),
        ({"QuotaReserved": ("False", "insufficient unused quota for cpu")}, ""),
        ({"Evicted": ("False", "Previously: Preempted"), "Admitted": ("True", "admitted again")}, ""),
    ],
)
def test_that_pods_were_taken_away_is_told_from_what_never_had_any(conditions: dict[str, tuple[str, str]], said: str) -> None:
    found = taken([workload(**conditions)])
    assert said in found and bool(said) == bool(found)


def test_of_no_workload_nothing_is_told() -> None:
    assert told([]) == ""
