"""The nouns of a burst: what lies in its folder, what its agent is told, what its journal says.

A burst's folder is private to one Unix user. ``capsule`` holds what the cell takes along, ``out/<rank>`` what a rank gives back,
``failed/<rank>`` what it failed of, ``journal`` its events, one JSON object a line in plain ASCII, so that it can be cut anywhere.
Standard library only, Python >= 3.9; it must hold no behaviour beyond conversion and the reading and writing of such files.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from .model import _Json

REQUEST = "request.json"  # from the kernel: how Python runs there (interpreter, environment, folder, module path)
PLAN = "plan.json"  # from the gateway: what the agent is to run
RECORD = "burst.json"  # the gateway's own
AGENT = "agent.json"  # the agent's pid and when it was started
CAPSULE = "capsule"
RESULTS = "out"
FAILURES = "failed"
JOURNAL = "journal"
SIZE = "size.json"  # from the gateway: how many workers it is to have from now on
GROUP = "group.json"  # from the agent: which workers there are
SOCKET_VARIABLE = "ELASTIC_BURST"  # in each rank's environment: the path of that socket
FIRST_VARIABLE = "ELASTIC_BURST_FIRST"  # in that of a role's that follows: the number of its first rank
LIMIT_VARIABLE = "ELASTIC_BURST_LIMIT"  # in a rank's whose results go to the gateway: how many bytes that takes
TOGETHER_VARIABLE = "ELASTIC_BURST_TOGETHER"  # where what starts a rank can't know it: how many of them count as one machine's
ROLE_VARIABLE, ADDRESSES_VARIABLE = "ROLE", "ROLE_ADDRESSES"  # where there are several roles; those by name, as JSON

# Events, by their ``t``; each has ``at``, seconds since 1970.
OUT = "out"  # rank, name ("stdout" or "stderr"), text; as (role and rank, of a role that follows)
SHOW = "show"  # rank, msg_type (display_data, update_display_data, clear_output), content
STATE = "state"  # running (ranks that have said hello), of
WAITS = "waits"  # text: what for; nothing runs yet
STEP = "step"  # text: how far the loops are
FAILED = "failed"  # rank, name, text (its traceback); raised (what it raised lies in failed/<rank>); as, like OUT's
NOTE = "note"  # text: for people
END = "end"  # outcome (one of OUTCOMES), message
HEARD = "heard"  # event: what one rank's pod has said of itself; what becomes of the burst is told by itself

# Between a rank and its agent. The rank says FAILED, SHOW, NOTE, STEP, and:
HELLO = "hello"  # rank, pid, as; with it come the reading ends of its stdout and stderr
PREPARED = "prepared"  # what takes time before a cell can begin is behind it
DONE = "done"  # it is through with its cell
COMMITS = "commits"  # it has come to its first commit
AT = "at"  # commits (how many it has done), asked (the question's number); it waits for STAY or UNTIL
SAVED = "saved"  # file, text (where the loops are)
LEFT = "left"  # it is through, and another group goes on
# The agent says:
GO = "go"  # start the cell; state (file to go on from, or null)
LEAVE = "leave"  # asked (number of the question): how far are you?
STAY = "stay"  # asked: the group doesn't leave now
UNTIL = "until"  # asked, commits: it leaves once it has done so many

# A pod of an elastic burst says of its ranks what they have said, with the number of their group (AT and DONE once for all of them), and:
READY = "ready"  # they are there, and wait to begin
THROUGH = "through"  # of several ranks one is through with its cell: it comes to no further commit
GONE = "gone"  # text: how its rank has ended before its time
LEAVING = "leaving"  # the cluster has told the pod to end

# What a rank's pod is told, in a mounted file
SPEC = "burst.json"  # url, certificate, token, burst: how it reaches the folder at the gateway
POD_VARIABLE = "ELASTIC_POD"  # in the pod of an elastic burst's worker: its name
USER_ERROR = 13  # exit code of a rank's pod whose cell has failed: by it the cluster tells that from what may be tried again

REQUIREMENT = re.compile(r"[A-Za-z0-9][^\x00-\x1f]{0,999}")  # what pip may be told to install: no option of pip's, nor a path

SAME, WANTED = "same", "wanted"  # of what pip is to install: what the notebook has, in those very versions; what the user names
COMPRESSION = re.compile(r"fp16|bf16|powersgd(:[1-9][0-9]{0,3})?")  # of gradients that torch sends
SAVE_EVERY = 300.0  # seconds between two saves of an elastic.State, beside those that a change of size needs

OK, ERROR, CANCELLED, LOST = "ok", "error", "cancelled", "lost"
OUTCOMES = (OK, ERROR, CANCELLED, LOST)
ALIGNED = 64  # bytes, as vector instructions like it

Buffer = Union[bytes, bytearray, memoryview, mmap.mmap]


@dataclass
class Process(_Json):
    """One process that the agent starts. ``ranks``: how many of the burst's ranks come to be in it or below it; one without is ended once
    all ranks are through. ``after``: it is started once this file is in the burst's folder. ``gpus``: UUIDs that it sees; None: all of the
    burst's. ``number``: of the first of its ranks; 0 where nobody asks. ``follows``: they are ended once all others are through."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)  # on top of the plan's
    name: str = "rank"  # for people, where it fails without a word
    ranks: int = 1
    after: str = ""
    gpus: list[str] | None = None
    number: int = 0
    follows: bool = False


@dataclass
class Size(_Json):
    """The workers that a burst is to have. ``number`` counts these orders, from 1."""

    number: int
    workers: int
    processes: list[dict[str, Any]]
    gpus: list[str] = field(default_factory=list)  # UUIDs of all that it has leased for them
    why: str = ""  # it changes, for people


@dataclass
class Group(_Json):
    """The workers that a burst has. ``number``: of the order that is carried out; ``gpus``: UUIDs of those that may be in use."""

    number: int = 0
    workers: int = 0
    gpus: list[str] = field(default_factory=list)
    commits: bool = False  # they can leave, and others go on
    refused: int = 0  # number of the newest order that could not be carried out


@dataclass
class Plan(_Json):
    """What the agent of a burst is to run. ``owner_pid`` and ``owner_started`` name the kernel process whose end ends the burst; both
    None for a detached one."""

    size: dict[str, Any]  # a Size: the first
    env: dict[str, str]
    cwd: str
    owner_pid: int | None = None
    owner_started: int | None = None
    journal_bytes: int = 256 << 20  # of text, after which output is dropped and counted
    timeout: float | None = None  # seconds that it may run; None: no limit
    restartable: bool = False  # without a commit it may begin anew
    lock_dir: str | None = None  # where its GPUs are locked while it is on them; None: nobody else could be
    sees_all: bool = False  # the workers may use whatever GPU is to be seen, as a pod has none but its own
    files: dict[str, str] = field(default_factory=dict)  # for the burst's folder, by name: this user's alone
    who: str = ""  # what others who find them locked are told


def socket_name(number: int) -> str:
    """Where the ranks of one group meet their agent: a file in the burst's folder."""
    return f"agent.{number}.sock"


def state_name(number: int) -> str:
    """The file of what was saved for the ``number``-th time."""
    return f"state.{number}"


def state_number(name: str) -> int:
    return int(name.rpartition(".")[2])


def line(event: dict[str, Any]) -> bytes:
    """An event as its line in the journal."""
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def write_buffers(path: Path, buffers: Sequence[Buffer]) -> None:
    """All of them into one file, each at its place, and their sizes into another beside it. No copy is made of them. Raises ``OSError``,
    and leaves nothing then: others need the room."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    sizes = [view.nbytes for view in views]
    places, end = places_of(sizes)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb", buffering=0) as file:
            file.truncate(end)
            for place, view in zip(places, views):
                file.seek(place)
                while view.nbytes:
                    view = view[file.write(view) :]
        write_json(_sizes_file(path), {"sizes": sizes})
    except OSError:
        path.unlink(missing_ok=True)
        raise


def read_buffers(path: Path) -> list[memoryview]:
    """What ``write_buffers`` has written: mapped, not read, and private to this process when it is changed. Raises ``OSError``."""
    sizes = buffer_sizes(path)
    with open(path, "rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    return [whole[place : place + size] for place, size in zip(places_of(sizes)[0], sizes)]


def buffer_sizes(path: Path) -> list[int]:
    """Of the buffers in the file at ``path``. Raises ``OSError``, ``ValueError``."""
    return [int(size) for size in read_json(_sizes_file(path))["sizes"]]


def places_of(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where buffers of these sizes begin in their file, and its size."""
    places, end = [], 0
    for size in sizes:
        places.append(end)
        end += -(-size // ALIGNED) * ALIGNED
    return places, max(end, 1)


def _sizes_file(path: Path) -> Path:
    return path.with_name(path.name + ".sizes")


def private(path: Any, flags: int) -> int:
    """For ``open``: a file of this user alone."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_json(path: Path, value: Any) -> None:
    """In one step, for this user alone."""
    draft = path.with_name(path.name + ".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(value, file)
    draft.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """Raises ``OSError``, ``ValueError``."""
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value
