"""The roles of a burst: processes of it that are alike, in pods those that have one template. Pure.

Standard library only, Python >= 3.9. It must hold no behaviour beyond the numbering of members.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .errors import BadRequest
from .model import _Json

WORKER, CHIEF, PS = "worker", "chief", "ps"  # names that engines give
NAME = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")  # part of a name in DNS


@dataclass(frozen=True)
class Role(_Json):
    """``count`` members. ``gpus``: of each. ``image``, ``cpu``, ``memory``: of each one's pod, "" as workers or the kernel have it.

    ``runs_cell``: each member is a rank that runs the cell; else it is a server of the engine's own, which the cell uses. ``leads``: the
    burst is through once all members of such roles are; those of others are ended then.
    """

    name: str
    count: int
    gpus: int = 0
    image: str = ""
    cpu: str = ""
    memory: str = ""
    runs_cell: bool = True
    leads: bool = True


class Member(NamedTuple):
    """``number``: among all members of the burst, by which journal, results and pods tell them apart; ``rank``: within its role."""

    number: int
    role: Role
    rank: int


def members(roles: Iterable[Role]) -> list[Member]:
    """All of them by number: the first role's are numbered from 0, so there number and rank are the same."""
    places = [(role, rank) for role in roles for rank in range(role.count)]
    return [Member(number, role, rank) for number, (role, rank) in enumerate(places)]


def checked(roles: Sequence[Role]) -> Sequence[Role]:
    """Raises ``BadRequest``."""
    names = [role.name for role in roles]
    for role in roles:
        if not NAME.fullmatch(role.name):
            raise BadRequest(f"A role is named by small letters, digits and hyphens, at most 20, from a letter on; not {role.name[:40]!r}.")
        if names.count(role.name) > 1:
            raise BadRequest(f"There are two roles named {role.name}.")
    return roles
