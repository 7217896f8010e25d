"""What the agent of a burst is told to run: the engine's processes, in the environment of the kernel that asked. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..protocol.burst import LIMIT_VARIABLE, REQUIREMENT, Plan, Process, Size
from ..protocol.errors import BadRequest
from ..settings import Bursts
from .engines import engine
from .engines.roles import with_roles
from .record import Record

_KINDS = {"python": str, "packages": str, "cwd": str, "env": dict, "version": list, "pid": int, "started": int}
_NOT_OURS = ("ELASTIC_SUPERVISOR", "JPY_PARENT_PID", "JPY_SESSION_NAME")  # of the kernel's environment, and nobody else's


def make_plan(record: Record, request: dict[str, Any], folder: Path, journal_bytes: int, lock_dir: str | None) -> Plan:
    """``lock_dir``: where its GPUs are locked while it is on them. Raises ``BadRequest`` where the engine can't run there."""
    env = _environment(request)
    owner = (None, None) if record.detach else (request["pid"], request["started"])
    return Plan(
        size=make_size(record, request, folder).to_json(), env=env, cwd=request["cwd"], owner_pid=owner[0], owner_started=owner[1],
        journal_bytes=journal_bytes, timeout=record.timeout, restartable=record.restartable, lock_dir=lock_dir,
        who=f"burst {record.name} of {record.user or 'nobody by name'}",
    )  # fmt: skip


def make_rank_plan(
    record: Record, request: dict[str, Any], processes: list[Process], settings: Bursts, pods: int, files: dict[str, str] | None = None
) -> Plan:
    """For the agent of one of so many pods: whose end ends it is looked at elsewhere."""
    env = {**_environment(request), LIMIT_VARIABLE: str(settings.capsule_bytes)}
    size = Size(number=1, workers=record.workers, processes=[vars(each) for each in processes])
    return Plan(
        size=size.to_json(), env=env, cwd=request["cwd"], journal_bytes=settings.journal_bytes // pods, timeout=record.timeout,
        sees_all=bool(record.gpus), files=files or {},
    )  # fmt: skip


def make_pod_plan(record: Record, request: dict[str, Any], settings: Bursts) -> Plan:
    """For the agent of a pod that is told one by one which groups it is in."""
    return make_rank_plan(record, request, [Process(argv=[], ranks=0)], settings, record.most)


def make_size(record: Record, request: dict[str, Any], folder: Path, why: str = "") -> Size:
    """The workers that it is to have now. Raises ``BadRequest`` where the engine can't run there."""
    processes = [vars(each) for each in with_roles(record, request, engine(record.engine)(record, request, folder))]
    return Size(number=record.order, workers=record.workers, processes=processes, gpus=record.leased, why=why)


def _environment(request: dict[str, Any]) -> dict[str, str]:
    env = {name: value for name, value in request["env"].items() if name not in _NOT_OURS}
    env["PYTHONPATH"] = ":".join(dict.fromkeys(filter(None, [*env.get("PYTHONPATH", "").split(":"), request["packages"]])))
    return env


def _is_requirement(value: Any) -> bool:
    return isinstance(value, str) and REQUIREMENT.fullmatch(value) is not None


def checked_request(request: dict[str, Any]) -> dict[str, Any]:
    """What a kernel says of its Python. Raises ``BadRequest``."""
    for name, kind in _KINDS.items():
        if not isinstance(request.get(name), kind):
            raise BadRequest(f"{name} is missing in what the kernel says of its Python.")
    if not all(isinstance(value, str) for value in request["env"].values()):
        raise BadRequest("env must hold text.")
    pip = request.get("pip") or {}
    if not isinstance(pip, dict) or not all(_is_requirement(each) for part in pip.values() for each in part):
        raise BadRequest("pip must hold what pip is to install, as it names packages.")
    return request
