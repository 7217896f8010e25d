"""A burst's other roles as Jobs of their own: each may have another image, cores, memory and GPUs. Pure.

They belong to the first role's Job and go with it. Their names in DNS are ``<burst>-<role>-<rank>.<burst>``. It must never give a pod an
image or a size that the profile doesn't leave to clients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ....protocol import burst
from ....protocol.errors import BadRequest
from ....protocol.roles import Role
from .. import names
from ..manifests import Object, Site
from ..profiles import Profile, chosen
from . import manifests
from .manifests import CONTAINER, Wanted

_CHOICES = {"KERNEL_IMAGE": "image", "KERNEL_CPU": "cpu", "KERNEL_MEMORY": "memory"}


def job(site: Site, profile: Profile, wanted: Wanted, role: Role, first: int, drained: Collection[str] = ()) -> Object:
    """``first``: the number of its first member among all of the burst's. Raises ``BadRequest``."""
    try:
        own = chosen(profile, {variable: getattr(role, attribute) for variable, attribute in _CHOICES.items()})
    except BadRequest as exc:
        raise BadRequest(f"The role {role.name} can't be had: {exc}") from None
    made = manifests.job(site, own, replace(wanted, workers=role.count, gpus=role.gpus, queue=""), drained)
    made["metadata"]["name"] += f"-{role.name}"
    for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
        metadata["labels"] = {**metadata["labels"], names.FIRST: str(first)}
    container = next(each for each in made["spec"]["template"]["spec"]["containers"] if each["name"] == CONTAINER)
    container["env"] = [*container["env"], {"name": burst.FIRST_VARIABLE, "value": str(first)}]
    return made


def owned(job: Mapping[str, Any], main: Mapping[str, Any]) -> Object:
    """``job``, belonging to ``main`` as the cluster has that."""
    made: Object = deepcopy(dict(job))
    owner = {"apiVersion": main["apiVersion"], "kind": main["kind"], "name": main["metadata"]["name"], "uid": main["metadata"]["uid"]}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": False, "blockOwnerDeletion": False}]
    return made
