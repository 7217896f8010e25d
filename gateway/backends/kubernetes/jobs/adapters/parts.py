"""A burst's roles as Indexed Jobs, which every adapter begins with, and what adapters do with them alike. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from .....protocol.errors import BadRequest
from ... import names
from ...manifests import Object

INDEX = "JOB_COMPLETION_INDEX"  # by which a rank knows its number, as pods of an Indexed Job have it


@dataclass(frozen=True)
class Part:
    """One role. ``job``: what it would be as a Job of its own."""

    name: str
    job: Mapping[str, Any]

    @property
    def count(self) -> int:
        return int(self.job["spec"]["completions"])

    @property
    def procs(self) -> int:
        """Ranks of each of its pods."""
        return int(self.job["spec"]["template"]["metadata"].get("annotations", {}).get(names.PROCS, 1))

    def template(self) -> Object:
        """Of its pods; the caller's own."""
        found: Object = deepcopy(self.job["spec"]["template"])
        return found


def metadata(parts: Sequence[Part]) -> Object:
    """Of the whole: name, labels and owner of the first Job."""
    found: Object = deepcopy(parts[0].job["metadata"])
    return found


def kept_seconds(parts: Sequence[Part]) -> int:
    return int(parts[0].job["spec"]["ttlSecondsAfterFinished"])


def job_spec(part: Part) -> Object:
    """Of the Job that somebody else is to make: what only the whole has is left out."""
    spec: Object = deepcopy(dict(part.job["spec"]))
    for each in ("suspend", "ttlSecondsAfterFinished"):
        spec.pop(each, None)
    return spec


def renamed(spec: Object, name: str) -> Object:
    """A Job's ``spec`` whose container is called ``name``."""
    [container] = spec["template"]["spec"]["containers"]
    container["name"] = name
    for rule in spec["podFailurePolicy"]["rules"]:
        if "onExitCodes" in rule:
            rule["onExitCodes"]["containerName"] = name
    return spec


def only(parts: Sequence[Part], kind: str) -> Part:
    """Raises ``BadRequest`` where there are several roles."""
    if len(parts) > 1:
        raise BadRequest(f"A {kind} has one role here, and there are {', '.join(part.name for part in parts)}: -l jobset has them all.")
    return parts[0]
