"""A rank's work: load the capsule, run the cell, give back what is wanted, or tell how it failed.

It must never run the user's code before the agent can see and end this process.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Optional

from ...protocol import burst
from ...protocol.errors import ElasticError
from ...protocol.transfer.blobs import header_of
from ..elastic.member import Left, Member, join
from ..rank import Arena, Failed, load
from . import compression
from .process_group import is_used, uses_torch
from .process_group import make as make_process_group

LARGEST = 16 << 20  # bytes of what is displayed at once

if TYPE_CHECKING:
    from .worker import Line


TRAINS = re.compile(r"DistributedDataParallel|\bDDP\b|optim")  # what imports torch._dynamo, which takes as long as torch itself


def prepare(folder: Path) -> None:
    """What takes time and touches neither the user's code nor a GPU, while the workers before us may still run."""
    try:
        header = header_of(burst.read_buffers(folder / burst.CAPSULE))
        text = header["source"]["text"]
        if uses_torch(text):
            importlib.import_module("torch")
            if TRAINS.search("\n".join([text, *header["files"].values()])):
                importlib.import_module("torch._dynamo")
    except (ImportError, ElasticError, OSError, ValueError, KeyError):
        pass  # whoever needs it will say so


class Part(NamedTuple):
    """Of one rank in its burst. ``number``: among all ranks; ``place``: RANK, WORLD_SIZE and LOCAL_RANK, within its role. ``follows``: its
    role is there for the one that leads."""

    number: int
    place: dict[str, int]
    follows: bool = False


def run(folder: Path, part: Part, line: Line, state: Optional[str]) -> int:
    """0: the cell has run, or left; 1: it has failed, and the agent knows how. ``state``: the file that this group goes on from."""
    number, place, leads = part.number, part.place, not part.follows

    def show(msg_type: str, content: dict[str, Any]) -> None:
        flush()
        size = len(json.dumps(content))
        if size > LARGEST:
            line.say(burst.NOTE, text=f"What rank {number} displays has {size / 1e6:.0f} MB, too much to be shown: save it to a file.")
            return
        line.say(burst.SHOW, msg_type=msg_type, content=content)

    try:
        request = burst.read_json(folder / burst.REQUEST)
        arena = _arena(folder / burst.CAPSULE)
        cell = load(arena.private, arena=arena, local_rank=place["LOCAL_RANK"], limit=_limit())
        if number == 0 and cell.missing:
            line.say(burst.NOTE, text=_lacks(cell.missing))
        if request.get("init") and leads:
            make_process_group(cell.source.text)
        if request.get("compress") and leads and is_used(cell.source.text):
            compression.install(request["compress"], lambda text: line.say(burst.NOTE, text=text) if number == 0 else None)
        if leads:
            join(Member(line, folder, state, number, place["WORLD_SIZE"], float(request.get("save_every", math.inf))))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process = os.getpid()
        failed = cell.run({**place, **_roles()}, show)
        if os.getpid() != process:
            _leave_to_parent(failed)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is under way now is brought to its end
        if failed is not None:
            try:
                burst.write_buffers(folder / burst.FAILURES / str(number), failed.blobs)
            except OSError:  # no room for the exception itself: its text has to do
                return _fail(line, failed.name, failed.text, raised=False)
            return _fail(line, failed.name, failed.text)
        give_back = request.get("give_back")
        if leads and (give_back is None or number in give_back):
            results = cell.give_back(request.get("out"))
            try:
                burst.write_buffers(folder / burst.RESULTS / str(number), results)
            except OSError as exc:
                return _fail(line, f"what it has made can't be kept in {folder}: {exc.strerror or exc}.", "", raised=False)
    except Left:
        flush()
        line.say(burst.LEFT)
        return 0
    except ElasticError as exc:
        return _fail(line, str(exc), "", raised=False)
    except KeyboardInterrupt:  # the cell is through, and others are the reason that this rank is to end
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _fail(line, "KeyboardInterrupt", "", raised=False)
    except Exception as exc:  # ours, or what a result's own code raises
        return _fail(line, f"{type(exc).__name__}: {exc}", traceback.format_exc(), raised=False)
    flush()
    line.say(burst.DONE)
    return 0


def _limit() -> Optional[int]:
    """Bytes of what goes home and of how that is laid out, which takes far less than the rest of them; None: any number."""
    most = os.environ.pop(burst.LIMIT_VARIABLE, None)
    return None if most is None else int(most) * 15 // 16


def _lacks(missing: list[dict[str, str]]) -> str:
    """What the user has installed in the notebook, and the workers' image hasn't."""
    names = [f"{item['name']} {item['version']}" for item in missing[:5]]
    rest = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return f"Installed in the notebook and not in its workers: {', '.join(names)}{rest}. With --pip installed they get them too."


def _roles() -> dict[str, Any]:
    """Names for the cell: its role, and where members of all roles are to be reached, where there are several."""
    addresses = os.environ.get(burst.ADDRESSES_VARIABLE)
    return {} if addresses is None else {"ROLE": os.environ[burst.ROLE_VARIABLE], "ADDRESSES": json.loads(addresses)}


def flush() -> None:
    """What was printed goes out before what is said after it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # closed by the cell, or something of its own that can't


def _leave_to_parent(failed: Optional[Failed]) -> NoReturn:
    """The cell has forked, and this is its child at the end of the cell: what becomes of the rank its parent tells."""
    if failed is not None and sys.stderr is not None:
        sys.stderr.write(failed.text)
    flush()
    os._exit(failed is not None)


def _arena(path: Path) -> Arena:
    """The capsule, mapped: all ranks of a machine share its pages, and copy those that they write to."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return Arena(burst.buffer_sizes(path), descriptor)
    finally:
        os.close(descriptor)


def _fail(line: Line, name: str, text: str, raised: bool = True) -> int:
    flush()
    line.say(burst.FAILED, at=time.time(), name=name, text=text, raised=raised)
    return 1
