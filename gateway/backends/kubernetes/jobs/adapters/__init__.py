"""Other kinds of object that a burst may be made as, for clusters whose users have them: each from the Jobs that it would be. Pure.

An adapter must never change what a rank is or runs; it says it in another object's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .....protocol.errors import BadRequest
from ...manifests import Object
from ..manifests import CONTAINER
from . import jobset, mpijob, rayjob, trainjob, volcano
from .parts import Part

JOB = "job"  # the plain one
UNSUSPENDED: Mapping[str, Any] = {"spec": {"suspend": False}}


def _nothing(parts: Sequence[Part]) -> list[Object]:
    return []


@dataclass(frozen=True)
class Shape:
    """A kind of object, and what one who makes it has to know.

    ``build``: the object; ``before``: those that have to be there first. Both raise ``BadRequest``. ``let_go``: the change with which its
    pods may come; None: they come at once. ``makes_pods``: the Job that makes the pods of the role ``name``, if one does; ``container``:
    of a rank. ``own_names``: it brings a headless Service. ``runs``: ranks of ours can run in it; else it is shown only.
    """

    group_version: str
    plural: str
    build: Callable[[Sequence[Part]], Object]
    before: Callable[[Sequence[Part]], list[Object]] = _nothing
    before_plural: str = ""
    let_go: Mapping[str, Any] | None = None
    makes_pods: str = ""
    container: str = CONTAINER
    own_names: bool = False
    runs: bool = True


def _the_job(parts: Sequence[Part]) -> Object:
    return dict(parts[0].job)


SHAPES: Mapping[str, Shape] = {
    JOB: Shape("batch/v1", "jobs", _the_job, let_go=UNSUSPENDED, makes_pods="{name}"),
    "jobset": Shape("jobset.x-k8s.io/v1alpha2", "jobsets", jobset.jobset, let_go=UNSUSPENDED, makes_pods="{name}-{role}-0", own_names=True),
    "trainjob": Shape(
        trainjob.API, "trainjobs", trainjob.trainjob, trainjob.runtime, "trainingruntimes", UNSUSPENDED,
        makes_pods=f"{{name}}-{trainjob.NODE}-0", container=trainjob.NODE, own_names=True,
    ),
    "volcano": Shape("batch.volcano.sh/v1alpha1", "jobs", volcano.volcano),
    "rayjob": Shape("ray.io/v1", "rayjobs", rayjob.rayjob, let_go=UNSUSPENDED, runs=False),
    "mpijob": Shape("kubeflow.org/v2beta1", "mpijobs", mpijob.mpijob, let_go={"spec": {"runPolicy": {"suspend": False}}}, runs=False),
}  # fmt: skip
RUN = tuple(name for name, shape in SHAPES.items() if shape.runs and name != JOB)


def shape(name: str) -> Shape:
    """Raises ``BadRequest`` that names those that are there."""
    if name not in SHAPES:
        raise BadRequest(f"There is no launcher {name[:40]!r}: there are {', '.join(SHAPES)}.")
    return SHAPES[name]


def belonging(objects: Sequence[Object], shape: Shape, main: Object) -> list[Object]:
    """What belongs to a burst's Job, belonging to ``main`` instead."""
    found = []
    for each in objects:
        if each["kind"] == "Service" and shape.own_names:
            continue
        meta, kind = each["metadata"], {"apiVersion": main["apiVersion"], "kind": main["kind"]}
        owners = [{**owner, **kind} for owner in meta.get("ownerReferences", ())]
        found.append({**each, "metadata": {**meta, **({"ownerReferences": owners} if owners else {})}})
    return found
