"""Which roles a burst is made of, by its engine and by what its user has named. Pure."""

from __future__ import annotations

from typing import Any

from ..protocol.errors import BadRequest
from ..protocol.roles import CHIEF, PS, WORKER, Role, checked, members
from .record import Record

_KINDS = {"name": str, "count": int, "gpus": int, "cpu": str, "memory": str, "image": str}
MOST_GPUS = 64  # of one member
MOST_PROCS = 64  # of one worker
# Engines of which one process runs the cell, and the workers are servers of their own.
_SERVED = {"tf-ps": CHIEF, "dask": "client", "ray": "driver"}


def layout(record: Record) -> list[Role]:
    """The role that runs the cell and leads comes first; those that the user has named come last."""
    more = [Role.from_json(each) for each in record.roles]
    if record.engine in _SERVED:
        servers = Role(WORKER, record.workers, record.gpus, runs_cell=False, leads=False)
        return [Role(_SERVED[record.engine], 1), servers, *more]
    return [Role(WORKER, record.workers, record.gpus), *more]


def shares(record: Record) -> dict[int, list[str]]:
    """UUIDs of the GPUs of each member, by its number: what is leased is the workers' first."""
    found, left = {}, list(record.leased)
    for member in members(layout(record)):
        found[member.number], left = left[: member.role.gpus], left[member.role.gpus :]
    return found


def wanted_roles(wanted: Any, engine: str, most: int) -> list[dict[str, Any]]:
    """What a kernel asks for beside workers, as a record keeps it. ``most``: members of one role. Raises ``BadRequest``."""
    roles = [_role(each, engine, most) for each in _list(wanted)]
    if engine == "tf-ps" and not any(role.name == PS for role in roles):
        roles.insert(0, Role(PS, 1, runs_cell=False, leads=False))
    taken = (WORKER, _SERVED.get(engine))
    named = next((role.name for role in roles if role.name in taken), None)
    if named is not None:
        raise BadRequest(f"The role {named} is there already: -w says how many workers there are.")
    return [role.to_json() for role in checked(roles)]


def wanted_procs(wanted: Any, engine: str, roles: list[dict[str, Any]]) -> int:
    """How many processes a kernel asks for in each worker. Raises ``BadRequest``."""
    if isinstance(wanted, bool) or not isinstance(wanted, int | None) or not 1 <= (1 if wanted is None else wanted) <= MOST_PROCS:
        raise BadRequest(f"procs must be a whole number from 1 to {MOST_PROCS}.")
    procs = wanted or 1
    if procs > 1 and engine in _SERVED:
        raise BadRequest(f"Each worker of -e {engine} is one server of its own, and -w says how many: --procs is for torch, none and mpi.")
    if procs > 1 and roles:
        raise BadRequest("With other roles beside them workers have one process each: leave --procs out.")
    return procs


def _list(wanted: Any) -> list[Any]:
    if not isinstance(wanted, list | None):
        raise BadRequest("roles must be a list.")
    return wanted or []


def _role(wanted: Any, engine: str, most: int) -> Role:
    if not isinstance(wanted, dict) or not {"name", "count"} <= set(wanted) <= {*_KINDS}:
        raise BadRequest(f"A role has a name and a count, and may have {', '.join(list(_KINDS)[2:])}.")
    for key, value in wanted.items():
        if not isinstance(value, _KINDS[key]) or isinstance(value, bool):
            raise BadRequest(f"A role's {key} can't be {str(value)[:40]!r}.")
    if not 1 <= wanted["count"] <= most:
        raise BadRequest(f"A role has from 1 to {most} members (Bursts.most_workers).")
    if not 0 <= wanted.get("gpus", 0) <= MOST_GPUS:
        raise BadRequest(f"gpus must be a whole number from 0 to {MOST_GPUS}.")
    server = engine == "tf-ps" and wanted["name"] == PS
    return Role(**wanted, runs_cell=not server, leads=False)
