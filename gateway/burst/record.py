"""One burst as the gateway knows it, kept in the burst's folder so that a gateway that was killed finds it again.

It must never hold, nor read, what the kernel has packed: that is between the kernel and its ranks.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..protocol import burst
from ..protocol.errors import BadRequest

NEW, WAITING, RUNNING, ENDED = "new", "waiting", "running", "ended"  # states
JOB = "job.json"  # file in the folder of a burst in pods: manifests, and what they were made of
_ID = re.compile(r"[0-9a-f]{16}")
_QUEUE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass
class Record:
    """``workers``: how many it is to have now, between ``least`` and ``most``. ``gpus``: of each. ``leases``: UUIDs held for it, by name of
    the lease: its own id for the least, and one for each worker more. Times are seconds since 1970."""

    id: str
    name: str
    kernel_id: str
    user: str
    engine: str
    workers: int
    gpus: int = 0
    detach: bool = False
    timeout: float | None = None
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    state: str = NEW
    outcome: str = ""  # once ended: one of protocol.burst.OUTCOMES
    message: str = ""  # why, for people
    least: int = 0
    most: int = 0
    pinned: int | None = None  # as many as the user wants for now
    restartable: bool = False  # without a commit it may begin anew
    order: int = 1  # number of the newest order to its agent
    leases: dict[str, list[str]] = field(default_factory=dict)
    starts: int = 0  # how often its kernel's process had been started: another one is another kernel; 0: its agent looks itself
    queue: str = ""  # of the cluster, which lets it begin
    job: str = ""  # uid of its Job, once that is there with all that belongs to it
    roles: list[dict[str, Any]] = field(default_factory=list)  # beside those that run the cell by their engine: each a protocol.roles.Role
    launcher: str = "auto"  # how its workers are started
    on_demand: bool = False  # no spot nodes
    flex: list[int] = field(default_factory=list)  # numbers of its workers beyond the least, where those are pods
    going: list[int] = field(default_factory=list)  # of those that are to leave
    flexed: int = 0  # how many such there have been
    procs: int = 1  # processes of each worker, which are ranks
    image: str = ""  # of its pods; "": the kernel's own

    def __post_init__(self) -> None:
        self.least, self.most = self.least or self.workers, self.most or self.workers

    @property
    def elastic(self) -> bool:
        return self.least < self.most

    @property
    def ranks(self) -> int:
        """Of its workers, all together, where they run the cell."""
        return self.workers * self.procs

    @property
    def most_ranks(self) -> int:
        """Of all that may ever run the cell; a chief is one more."""
        return self.most * self.procs + sum(int(role["count"]) for role in self.roles) + 1

    @property
    def pod_called(self) -> str:
        """What the number of one of its pods is the number of."""
        return "rank" if self.procs == 1 else "worker"

    @property
    def role_gpus(self) -> int:
        """Of all roles beside the workers."""
        return sum(int(role["count"]) * int(role.get("gpus", 0)) for role in self.roles)

    @property
    def least_gpus(self) -> int:
        """Of all, with as many workers as it has at least."""
        return self.gpus * self.least + self.role_gpus

    @property
    def leased(self) -> list[str]:
        """UUIDs of the GPUs for as many workers as it is to have, then of other roles'."""
        return [uuid for gpus in self.leases.values() for uuid in gpus][: self.workers * self.gpus + self.role_gpus]

    def gpus_of(self, worker: int) -> list[str]:
        """UUIDs of what is leased for that worker."""
        return self.leased[worker * self.gpus : (worker + 1) * self.gpus]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "leased": self.leased}


def new_id() -> str:
    return secrets.token_hex(8)


def checked_name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise BadRequest("The name of a burst may have letters, digits, dots, hyphens and underscores, at most 63 of them.")
    return value


def checked_queue(value: Any) -> str:
    if value is not None and not (isinstance(value, str) and _QUEUE.fullmatch(value)):
        raise BadRequest("The name of a queue has small letters, digits, dots and hyphens, at most 63 of them.")
    return value or ""


def checked_launcher(value: Any) -> str:
    if value is not None and not (isinstance(value, str) and value.isascii() and value.isalpha() and len(value) < 20):
        raise BadRequest("The name of a launcher is one word, such as job.")
    return value or "auto"


def checked_image(value: Any) -> str:
    if value is not None and not (isinstance(value, str) and _IMAGE.fullmatch(value)):
        raise BadRequest("An image is named as in registry.example.com/name:tag, by letters, digits and . _ / : @ - alone.")
    return value or ""


class Folder:
    """The folder of one burst."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def all(cls, root: Path) -> list[Folder]:
        return [cls(path) for path in sorted(root.iterdir()) if _ID.fullmatch(path.name)]

    def make(self) -> None:
        self.path.mkdir(mode=0o700)

    def load(self) -> Record:
        """Raises ``OSError``, ``ValueError``, ``TypeError`` where it makes no sense."""
        known = {each.name for each in fields(Record)}
        return Record(**{name: value for name, value in burst.read_json(self.path / burst.RECORD).items() if name in known})

    def save(self, record: Record) -> None:
        burst.write_json(self.path / burst.RECORD, record.to_json())

    def request(self) -> dict[str, Any]:
        """What the kernel has said about its Python. Raises ``BadRequest``."""
        try:
            return burst.read_json(self.path / burst.REQUEST)
        except (OSError, ValueError) as exc:
            raise BadRequest(f"The kernel has not said how its Python is run: {exc}.") from None

    def keep_job(self, job: dict[str, Any]) -> None:
        """What its Jobs are made of in a cluster."""
        burst.write_json(self.path / JOB, job)

    def job(self) -> dict[str, Any]:
        """Raises ``BadRequest`` where none is kept."""
        try:
            return burst.read_json(self.path / JOB)
        except (OSError, ValueError):
            raise BadRequest("Of this burst no manifests are kept.") from None

    def events(self, since: int, most: int) -> bytes:
        """The journal from byte ``since`` on, ``most`` bytes of it."""
        try:
            with open(self.path / burst.JOURNAL, "rb") as file:
                file.seek(min(since, file.seek(0, os.SEEK_END)))
                return file.read(most)
        except FileNotFoundError:
            return b""

    def events_size(self) -> int:
        """Bytes of journal."""
        try:
            return (self.path / burst.JOURNAL).stat().st_size
        except FileNotFoundError:
            return 0

    def note(self, *events: dict[str, Any]) -> None:
        """Add events to the journal, where no agent does; all or none of them, should this process be killed."""
        if events:
            with open(self.path / burst.JOURNAL, "a+b", buffering=0, opener=burst.private) as file:
                torn = file.seek(0, os.SEEK_END) > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
                file.write(b"\n" * torn + b"".join(map(burst.line, events)))

    def lines(self) -> Iterator[bytes]:
        """Of the journal."""
        try:
            with open(self.path / burst.JOURNAL, "rb") as file:
                yield from file
        except FileNotFoundError:
            pass

    def end(self) -> dict[str, Any] | None:
        """The journal's last event, if it is the end."""
        try:
            with open(self.path / burst.JOURNAL, "rb") as file:
                file.seek(max(0, file.seek(0, 2) - (1 << 16)))
                last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
            event = json.loads(last)
        except (OSError, ValueError):
            return None
        return event if event.get("t") == burst.END else None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
