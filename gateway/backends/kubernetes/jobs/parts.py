"""The two parts of an elastic burst: one Indexed Job of as many pods as it has at least, and a Job of one pod for each more. Pure.

One Job with its parallelism patched would always lose its highest index, wherever that is, and its controller would ask at once for each
GPU that is given back; so each worker beyond the least is a Job of its own, which whoever waits on its node can have, and which nobody
makes again. Those have spot nodes where there are any, which the base leaves to them, and a low priority where the administrator has named
a class. It must never give them more rights than the base has.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ....protocol import burst
from .. import names
from ..manifests import Object
from ..profiles import Profile
from . import spot
from .manifests import CONTAINER, KUEUE_QUEUE

GRACE = 30  # seconds for a pod's worker to come to a commit, save and leave, once the cluster takes the pod away
LOSSES = 1000  # pods of the base that are made anew, at most; the gateway gives up long before


def base(job: Object, profile: Profile, on_demand: bool) -> Object:
    """``job``, whose pods may be lost: they are made anew."""
    made = deepcopy(job)
    made["spec"]["backoffLimit"] = LOSSES
    _worker(made["spec"]["template"]["spec"])
    if not on_demand:
        spot.avoid(made["spec"]["template"]["spec"], profile)
    return made


def flex(job: Object, profile: Profile, on_demand: bool) -> Object:
    """What each worker beyond the least is made of; ``numbered`` makes it one."""
    made = deepcopy(job)
    spec, pod = made["spec"], made["spec"]["template"]["spec"]
    spec |= {"suspend": KUEUE_QUEUE in made["metadata"]["labels"], "completions": 1, "parallelism": 1, "backoffLimit": 0}
    del spec["podFailurePolicy"]
    made["metadata"].pop("ownerReferences", None)
    _worker(pod)
    if profile.flex_priority_class:
        pod["priorityClassName"] = profile.flex_priority_class
    if not on_demand:
        spot.prefer(pod, profile)
    return made


def numbered(flex: Object, number: int, base: Object) -> Object:
    """The Job of worker ``number`` beyond the least; it goes with the ``base``, as the cluster has that."""
    made, name = deepcopy(flex), base["metadata"]["name"]
    made["metadata"]["name"] = f"{name}-{number}"
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": base["metadata"]["uid"], "controller": False,
         "blockOwnerDeletion": False}
    ]  # fmt: skip
    for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
        metadata["labels"] = {**metadata["labels"], names.FLEX: str(number)}
    return made


def _worker(pod: dict[str, Any]) -> None:
    pod["terminationGracePeriodSeconds"] = GRACE
    container = next(each for each in pod["containers"] if each["name"] == CONTAINER)
    container["env"] = [
        *container["env"], {"name": burst.POD_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    ]  # fmt: skip
