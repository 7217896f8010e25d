"""What a burst in pods may be, by kind of Job, engine and size. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...protocol.errors import BadRequest
from ..record import Record

JOBS = "job"  # what is launched where nothing else was asked for
WITH_ROLES = (JOBS, "jobset")  # kinds in which roles have Jobs of their own
ELASTIC_IN_PODS = ("none", "torch")  # engines


def kind_of(record: Record) -> str:
    return JOBS if record.launcher == "auto" else record.launcher


def check_size(record: Record, kind: str) -> None:
    """Raises ``BadRequest``."""
    if record.elastic and record.engine not in ELASTIC_IN_PODS:
        elastic = ", ".join(ELASTIC_IN_PODS)
        raise BadRequest(f"In pods, workers of -e {record.engine} keep their number: -w {record.least}, say. Elastic: {elastic}.")
    if record.elastic and kind != JOBS:
        raise BadRequest(f"Workers of -l {kind} keep their number: -w {record.least}, say, or leave -l out.")


def check_roles(record: Record, kind: str, others: Sequence[Any]) -> None:
    """``others``: its roles beside the workers. Raises ``BadRequest``."""
    if others and kind not in WITH_ROLES:
        raise BadRequest(f"-l {kind} has no roles beside its workers in this version; there is -l {', -l '.join(WITH_ROLES)}.")
    if others and record.queue and kind == JOBS:
        raise BadRequest("Kueue would let each role go by itself: with --queue, roles need -l jobset.")
