"""A burst that a program asks for, not a cell: what it says is read and checked, and what a kernel would have brought is made for it.

Its cell is text and takes no variable along, as nobody but the kernel itself can pack one. It must never take on a value that it has not
checked, nor hold anything of the user's but text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..broker.link import KernelLink
from ..protocol import burst
from ..protocol.errors import BadRequest, ElasticError
from ..protocol.transfer import written
from .bursts import Bursts
from .record import Record

WORKERS, ENGINE = 2, "none"  # where nothing is said
MOST_NAMES = 1000  # in one list

# What a kernel asks for, too: `Bursts.create` looks at their values.
_AS_A_KERNEL = ("workers", "most", "procs", "engine", "gpus", "name", "timeout_seconds", "queue", "launcher", "image", "roles")
_SWITCHES = {"detach": True, "restartable": False, "on_demand": False}
# What a kernel tells its ranks.
_FOR_RANKS = ("pip", "out", "ranks", "init", "save_every_seconds", "compress")
FIELDS = ("kernel_id", "code", "dry_run", *_AS_A_KERNEL, *_SWITCHES, *_FOR_RANKS)


@dataclass(frozen=True)
class Posted:
    """``wanted``: as a kernel asks for a burst. ``for_ranks``: what a kernel says besides how its Python is run."""

    kernel_id: str
    code: str
    wanted: Mapping[str, Any] = field(default_factory=dict)
    for_ranks: Mapping[str, Any] = field(default_factory=dict)
    dry_run: bool = False


def read(body: dict[str, Any], most_bytes: int) -> Posted:
    """What a program has sent; null is as if it weren't said. ``most_bytes``: of code. Raises ``BadRequest``. What depends on where bursts
    run is checked as the burst is created."""
    said = {name: value for name, value in body.items() if value is not None}
    unknown = next((name for name in said if name not in FIELDS), None)
    if unknown is not None:
        raise BadRequest(f"There is no field {unknown[:40]!r}: a burst has {', '.join(FIELDS)}.")
    kernel_id = said.get("kernel_id")
    if not isinstance(kernel_id, str):
        raise BadRequest("kernel_id must be the id of the kernel whose burst it is to be: GET /api/kernels lists them.")
    wanted = {"workers": WORKERS, "engine": ENGINE, **{name: said[name] for name in _AS_A_KERNEL if name in said}}
    wanted |= {name: _switch(said, name, usual) for name, usual in _SWITCHES.items()}
    if not wanted.get("name", "x"):
        raise BadRequest("name must not be empty: leave it out, and the gateway chooses one.")
    return Posted(kernel_id, _code(said.get("code"), most_bytes), wanted, _for_ranks(said, wanted), _switch(said, "dry_run", False))


async def create(bursts: Bursts, link: KernelLink, posted: Posted) -> Record:
    """Start it, for the kernel on ``link``, which may be busy. Raises ``ElasticError``, and nothing of it is left then."""
    python = await _python(link)
    shown = bursts.create(link.supervisor, dict(posted.wanted))["burst"]
    record = bursts.find(shown["id"])
    try:
        folder = bursts.folder_of(record).path
        capsule = written.pack(posted.code, f"<burst {record.name}>", [str(python["cwd"])])
        burst.write_json(folder / burst.REQUEST, {**python, **posted.for_ranks})
        burst.write_buffers(folder / burst.CAPSULE, capsule)
        bursts.begin(record)
    except BaseException as exc:
        bursts.cancel(record)
        if isinstance(exc, OSError):
            raise ElasticError(f"The burst can't be kept: {exc.strerror or exc}.", reason="not_kept") from None
        raise
    return record


async def _python(link: KernelLink) -> dict[str, Any]:
    """How the kernel's Python is run, as its supervisor knows it."""
    try:
        answer = await link.call("python")
    except BadRequest:
        raise BadRequest(
            "The kernel was started by an older version, which can't say how its Python is run: start another kernel, or use "
            "%%distributed in this one."
        ) from None
    return {name: value for name, value in answer.items() if name not in ("ok", "id")}


def _code(value: Any, most_bytes: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadRequest("code must be the text of a cell.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        size = -1
    if size < 0 or "\0" in value:
        raise BadRequest("code holds a character that no Python can read.")
    if size > most_bytes:
        raise BadRequest(f"code has {size} bytes, and a cell may take {most_bytes} along here (Bursts.capsule_bytes).")
    return value


def _switch(said: Mapping[str, Any], name: str, usual: bool) -> bool:
    value = said.get(name, usual)
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false.")
    return value


def _for_ranks(said: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    torch, seconds = wanted["engine"] == "torch", said.get("save_every_seconds", burst.SAVE_EVERY)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        raise BadRequest("save_every_seconds must be a number of seconds above 0.")
    compress = said.get("compress")
    if compress is not None and not (torch and isinstance(compress, str) and burst.COMPRESSION.fullmatch(compress)):
        raise BadRequest("compress must be fp16, bf16, powersgd or powersgd:RANK, and needs the engine torch, whose gradients it is for.")
    pip = _list(said, "pip", "packages as pip names them", _is_requirement) or []
    if "installed" in pip:
        raise BadRequest("pip can't have 'installed' here: nobody but the kernel knows what is installed in it. Name the packages.")
    return {
        "pip": {burst.SAME: [], burst.WANTED: pip}, "out": _list(said, "out", "names of variables", _is_name),
        "give_back": _ranks(said, wanted), "init": _switch(said, "init", True) and torch, "save_every": seconds, "compress": compress,
    }  # fmt: skip


def _ranks(said: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[int] | None:
    """Which give something back; None: all."""
    if said.get("ranks") == "all":
        return None
    numbers = wanted["workers"], wanted.get("procs", 1)
    count = numbers[0] * numbers[1] if all(map(_is_whole, numbers)) else 0  # which is refused as the burst is created
    what = f'numbers of ranks below {count}, or the word "all"'
    found = _list(said, "ranks", what, lambda rank: _is_whole(rank) and 0 <= rank < count)
    if found == []:
        raise BadRequest("ranks must name one at least: leave it out for rank 0.")
    return found or [0]


def _list(said: Mapping[str, Any], name: str, what: str, fits: Callable[[Any], bool]) -> list[Any] | None:
    """None where nothing is said. Raises ``BadRequest``."""
    value = said.get(name)
    if value is not None and not (isinstance(value, list) and len(value) <= MOST_NAMES and all(map(fits, value))):
        raise BadRequest(f"{name} must be a list of {what}.")
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _is_requirement(value: Any) -> bool:
    return isinstance(value, str) and burst.REQUIREMENT.fullmatch(value) is not None
