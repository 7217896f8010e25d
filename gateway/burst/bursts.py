"""All bursts of one machine: created for a kernel, started through a launcher, followed, cancelled, forgotten.

They lie in the runtime folder, one folder each, and go on when the gateway is killed; the next one finds them. It must never unpickle,
nor look into, what a kernel has packed, and never end a burst because a gateway ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir
from traitlets.config import Configurable

from ..backends.base import Supervisor
from ..backends.places import private_folder
from ..broker.broker import Broker
from ..broker.guests import Guest
from ..broker.news import BURST
from ..leases.events import KernelSeen, Place
from ..protocol import burst
from ..protocol.errors import BadRequest, ElasticError, SettingError
from ..settings import Bursts as Settings
from .engines import ELASTIC, engine
from .launchers import Launcher
from .launchers.jobs import Jobs
from .launchers.local import Local
from .layout import wanted_procs, wanted_roles
from .plan import checked_request
from .record import ENDED, NEW, RUNNING, WAITING, Folder, Record, checked_image, checked_launcher, checked_name, checked_queue, new_id
from .size import at_start
from .sizing import Sizing

log = logging.getLogger(__name__)

CHUNK = 32 << 10  # bytes of journal in one answer to a kernel, which reads them line by line of JSON
LOOK = 0.03  # seconds between two looks at a journal that somebody waits for
PATIENCE = 10.0  # seconds for which a question about new events is left open
ROUND = 1.0  # seconds between two looks at all bursts
UNFINISHED = 600.0  # seconds after which one that was created and never started is forgotten
NO_SUCH = "no_such_burst"  # reason
_NUMBERED = re.compile(r"burst-([1-9][0-9]{0,8})")  # a name that was nobody's choice


def host(broker: Broker, parent: Configurable) -> Bursts | None:
    """Give a broker, before its start, the bursts of its machine or cluster; None where kernels are neither processes nor pods.

    Whoever leases GPUs is the one host of bursts too: their GPUs come through its book, kernels find it by the line that they have, and on
    a machine without a gateway the on-demand broker does it.
    """
    settings, backend = Settings(parent=parent), broker.backend
    if backend.places is None and backend.jobs is None:
        return None
    root = _root(settings.folder, broker.owner) if backend.places is None else backend.places.bursts
    bursts = Bursts(root, settings, broker)
    broker.questions.answers["burst"] = bursts.answer
    broker.beside.append(bursts)
    return bursts


class Bursts:
    """``root``: the folder of all bursts. ``broker``: it leases their GPUs."""

    def __init__(self, root: Path, settings: Settings, broker: Broker) -> None:
        self.root, self._settings, self._broker = root, settings, broker
        self._records: dict[str, Record] = {}
        self._launcher: Launcher
        if broker.backend.jobs is None:
            self._launcher = Local(self.folder_of, settings, lambda: broker.backend.lock_dir)
        else:
            self._launcher = Jobs(self, broker, settings)
        self._sizing = Sizing(broker, settings, self._launcher.order, self.folder_of)
        self._round: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled: set[str] = set()

    def held(self) -> list[KernelSeen]:
        """Find the bursts of an earlier gateway; those that run have their GPUs."""
        for folder in Folder.all(self.root):
            try:
                record = folder.load()
            except (OSError, ValueError, TypeError) as exc:
                log.warning("%s holds no burst that can be read (%s): it is removed", folder.path, exc)
                folder.remove()
            else:
                self._records[record.id] = record
        running = [record for record in self._records.values() if record.leases and self.shown(record)["state"] == RUNNING]
        return [seen for record in running for seen in self._sizing.hold(record, self._guest(record))]

    async def start(self) -> None:
        """Look after all from now on."""
        await self._launcher.open()
        for record in self._records.values():
            if record.state == WAITING:
                self._broker.guests.ask(self._guest(record))
        self._round = asyncio.get_running_loop().create_task(self._look_after())

    async def stop(self) -> None:
        """Look after them no more; they go on."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)
        await self._launcher.close()

    @property
    def capsule_bytes(self) -> int:
        """What a cell may take along."""
        return self._settings.capsule_bytes

    # asked by a kernel, and by REST

    async def answer(self, supervisor: Supervisor, question: dict[str, Any]) -> dict[str, Any]:
        """A question of a magic: ``op`` and its fields. Raises ``ElasticError``."""
        op, user = question.get("op"), supervisor.whose_name
        if op == "create":
            return self.create(supervisor, question)
        if op == "preview":
            return {"manifests": self.preview(supervisor, question)}
        if op == "list":
            return {"bursts": self.listing(user)}
        record = self.find(question.get("burst"), user)
        if op == "start":
            self.begin(record)
        elif op == "events":
            since = _whole(question, "since", 0, 1 << 50)
            newest = _whole(question, "newest", 0, 1 << 50) if "newest" in question else 1 << 50
            first = max(since, self.folder_of(record).events_size() - newest)
            data = await self.events(record, first, CHUNK, wait=bool(question.get("wait")))
            told = {"text": data.decode("ascii"), "next": first + len(data), "left_out": first - since}
            return {**told, "burst": self._for_kernel(record)}
        elif op == "scale":
            self.scale(record, question.get("workers"))
        elif op in ("cancel", "forget"):
            self.cancel(record) if op == "cancel" else self.forget(record)
            return {"burst": self.shown(record)}  # its folder may be gone
        elif op == "yaml":
            return {"manifests": self._launcher.manifests(record)}
        elif op != "show":
            raise BadRequest(f"A burst can't be asked to {str(op)[:40]!r}.")
        return {"burst": self._for_kernel(record)}

    def preview(self, supervisor: Supervisor, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        """What it would be made of in a cluster; [] where there is none. Raises ``ElasticError``."""
        return self._launcher.preview(self._new(supervisor, wanted), supervisor)

    def create(self, supervisor: Supervisor, wanted: dict[str, Any]) -> dict[str, Any]:
        """Make room for one. The kernel puts what its cell needs into its folder, then says start."""
        record, there = self._new(supervisor, wanted), self._launcher.usable(supervisor, self._leasable())
        taken = next((each for each in self._of(record.user) if each.name == record.name), None)
        if taken is not None and taken.state != ENDED:
            raise BadRequest(f"A burst named {record.name} runs already: choose another --name, or `%burst cancel {record.name}`.")
        self._launcher.prepare(record, supervisor)
        if taken is not None:
            self.forget(taken)  # the name means the newest
        folder = self.folder_of(record)
        try:
            folder.make()
            folder.save(record)
        except OSError as exc:
            folder.remove()
            told = f"Bursts can't be kept in {self.root}: {exc.strerror or exc}."
            raise ElasticError(f"{told} Make room there, or forget some (DELETE /api/bursts/NAME).", reason="not_kept") from None
        self._records[record.id] = record
        if there and wanted.get("uses_gpu") and "gpus" not in wanted and not record.gpus:
            each = "each" if record.procs == 1 else "for each process"
            text = f"These workers have no GPU: with one {each} they would need {record.least * record.procs}, and there are {there} here."
            folder.note({"t": burst.NOTE, "at": time.time(), "text": text})
        return {"burst": self._for_kernel(record), "capsule_bytes": self.capsule_bytes}

    def _new(self, supervisor: Supervisor, wanted: dict[str, Any]) -> Record:
        """Raises ``BadRequest``."""
        user, roles = supervisor.whose_name, wanted_roles(wanted.get("roles"), str(wanted.get("engine")), self._settings.most_workers)
        least, most = self._size(wanted)
        procs = wanted_procs(wanted.get("procs"), str(wanted["engine"]), roles)
        timeout = wanted.get("timeout_seconds")
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < 1e9):
            raise BadRequest("timeout_seconds must be a number of seconds above 0.")
        there = self._launcher.usable(supervisor, self._leasable())
        gpus = _whole(wanted, "gpus", 0, 64) if "gpus" in wanted else procs * int(bool(wanted.get("uses_gpu")) and least * procs <= there)
        name = checked_name(wanted["name"]) if wanted.get("name") else self._new_name(user)
        record = Record(
            new_id(), name, supervisor.kernel_id, user, str(wanted["engine"]), least, gpus, detach=bool(wanted.get("detach")),
            timeout=timeout, created=time.time(), least=least, most=most, restartable=bool(wanted.get("restartable")),
            queue=checked_queue(wanted.get("queue")), launcher=checked_launcher(wanted.get("launcher")),
            on_demand=bool(wanted.get("on_demand")), roles=roles, procs=procs, image=checked_image(wanted.get("image")),
        )  # fmt: skip
        if record.roles and record.elastic:
            raise BadRequest(f"With other roles beside them workers keep their number: -w {least}, say.")
        if not gpus and record.elastic:
            record.workers = at_start(least, most, 0, 0, len(os.sched_getaffinity(0)) // procs)
        return record

    def _size(self, wanted: dict[str, Any]) -> tuple[int, int]:
        """How many workers at least and at most. Raises ``BadRequest``."""
        least = _whole(wanted, "workers", 1, 1 << 20)
        most = _whole(wanted, "most", least, 1 << 20) if "most" in wanted else least
        if most > self._settings.most_workers:
            raise BadRequest(f"{most} workers are too many: at most {self._settings.most_workers} here (Bursts.most_workers).")
        engine(wanted.get("engine"))
        if most > least and wanted["engine"] not in ELASTIC:
            raise BadRequest(f"Workers of the engine {wanted['engine']} keep their number: -w {least}, say. Elastic: {', '.join(ELASTIC)}.")
        return least, most

    def begin(self, record: Record) -> None:
        """Start a burst whose capsule is in its folder, once it has its GPUs. Raises ``BadRequest``."""
        if record.state != NEW:
            raise BadRequest(f"The burst {record.name} was started already.")
        checked_request(self.folder_of(record).request())
        if not record.least_gpus or not self._launcher.leases:
            self._launch(record)
            return
        self._become(record, WAITING)
        self._broker.guests.ask(self._guest(record))

    def _launch(self, record: Record) -> None:
        try:
            self._launcher.launch(record)
        except OSError as exc:
            raise ElasticError(f"The workers can't be started: {exc.strerror or exc}.", reason="launch_failed") from None
        record.started = time.time()
        self._become(record, RUNNING)

    # its GPUs

    def _guest(self, record: Record) -> Guest:
        return Guest(
            id=record.id,
            user=record.user,
            count=record.least_gpus,
            display=record.name,
            granted=lambda gpus: self._granted(record, gpus),
            denied=lambda why: self.over(record, burst.ERROR, f"{why} For workers that is a smaller -w or -g; -g 0 gives them none."),
            waits=lambda place: self._waits(record, place),
        )

    def _granted(self, record: Record, gpus: tuple[str, ...]) -> None:
        record.leases[record.id] = list(gpus)
        room = record.gpus * record.least + self._broker.guests.idle()
        more = at_start(record.least, record.most, record.gpus, room, 0) - record.least if record.elastic else 0
        self._later(self._start_with(record, more))

    async def _start_with(self, record: Record, more: int) -> None:
        """``more``: workers for whom there is a GPU, too."""
        if more:
            record.workers = record.least + await self._sizing.lease_more(record, more)
        try:
            if record.state == WAITING:
                self._launch(record)
        except ElasticError as exc:
            self.over(record, burst.ERROR, str(exc))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # its size

    def scale(self, record: Record, workers: Any) -> None:
        """So many workers from now on, as far as there are GPUs; ``None``: as many as there are GPUs for. Raises ``BadRequest``."""
        self._refresh(record)
        if record.state == ENDED:
            raise BadRequest(f"The burst {record.name} has ended.")
        if not record.elastic:
            raise BadRequest(f"The burst {record.name} has {record.workers} workers to its end: only one of -w MIN:MAX changes.")
        record.pinned = None if workers is None else _whole({"workers": workers}, "workers", record.least, record.most)
        self.folder_of(record).save(record)

    def _leasable(self) -> int:
        """GPUs that are leased here, to whomever."""
        book = self._broker.book
        return sum(book.devices.usable(uuid) for uuid in book.gpus)

    def _waits(self, record: Record, place: Place) -> None:
        """Tell the cell that asked; and what its own kernel has and doesn't use is lent to it."""
        count = record.least_gpus
        held = f"; held by {', '.join(place.holders)}" if place.holders else ""
        text = f"waits for {count} GPU{'s' * (count != 1)}, place {place.position} of {place.of}{held}"
        self.folder_of(record).note({"t": burst.WAITS, "at": time.time(), "text": text})
        self._later(self._lend(record.kernel_id))

    async def _lend(self, kernel_id: str) -> None:
        with contextlib.suppress(ElasticError):  # it holds none, or uses it
            await self._broker.release(kernel_id)

    def over(self, record: Record, outcome: str, message: str) -> None:
        """It ends before any agent could say so."""
        end = {"t": burst.END, "at": time.time(), "outcome": outcome, "message": message}
        self._note_end(record, end)
        self._refresh(record)
        if record.state in (WAITING, RUNNING):
            self._has_ended(record, end)

    async def events(self, record: Record, since: int, most: int, wait: bool = False) -> bytes:
        """The journal from byte ``since`` on. ``wait``: not before there is some, or some seconds have passed."""
        folder, end = self.folder_of(record), time.monotonic() + (PATIENCE if wait else 0)
        while True:
            data = folder.events(since, most)
            if data or record.state == ENDED or time.monotonic() >= end or record.id not in self._records:
                return data
            await asyncio.sleep(LOOK)

    def cancel(self, record: Record) -> None:
        """End its workers; what has come until then stays."""
        if record.state == NEW:
            self.forget(record)
        elif record.state == WAITING:
            self.over(record, burst.CANCELLED, "It was cancelled while it waited for GPUs.")
        else:
            self._cancelled.add(record.id)
            self._launcher.cancel(record)

    def forget(self, record: Record) -> None:
        """Remove one that has ended, or that was never started. Raises ``BadRequest``."""
        self._refresh(record)
        if record.state not in (NEW, ENDED):
            raise BadRequest(f"The burst {record.name} still runs: cancel it first.")
        self._records.pop(record.id, None)
        if record.state == NEW:
            self._launcher.ended(record)
        self._cancelled.discard(record.id)
        self.folder_of(record).remove()

    def all(self) -> list[Record]:
        """Oldest first."""
        return self._of(None)

    def known(self, burst_id: str) -> Record | None:
        return self._records.get(burst_id)

    def listing(self, user: str | None = None) -> list[dict[str, Any]]:
        """All, oldest first, or those of one user."""
        return [self.shown(record) for record in self._of(user)]

    def find(self, which: Any, user: str | None = None) -> Record:
        """By id or name. Raises ``ElasticError``, reason ``NO_SUCH``."""
        for record in self._of(user):
            if which in (record.id, record.name):
                return record
        shown = str(which)[:70]
        raise ElasticError(f"There is no burst {shown!r}, or no longer (Bursts.keep_results); `%burst ls` lists them.", reason=NO_SUCH)

    def shown(self, record: Record) -> dict[str, Any]:
        """As REST and magics show it."""
        self._refresh(record)
        return record.to_json()

    def _for_kernel(self, record: Record) -> dict[str, Any]:
        """And how its folder is reached."""
        return {**self.shown(record), **self._launcher.access(record)}

    def result(self, record: Record, rank: int) -> Path:
        """The file of a rank's result. Raises ``ElasticError`` where it has given back none."""
        file = self.folder_of(record).path / burst.RESULTS / str(rank)
        if not file.is_file():
            raise ElasticError(f"Rank {rank} of {record.name} has given nothing back.", reason=NO_SUCH)
        return file

    # inside

    def _of(self, user: str | None) -> list[Record]:
        found = [record for record in self._records.values() if user is None or record.user == user]
        return sorted(found, key=lambda record: record.created)

    def folder_of(self, record: Record) -> Folder:
        return Folder(self.root / record.id)

    def _new_name(self, user: str) -> str:
        found = (_NUMBERED.fullmatch(record.name) for record in self._of(user))
        return f"burst-{max((int(each[1]) for each in found if each), default=0) + 1}"

    def _refresh(self, record: Record) -> None:
        """Has it ended meanwhile?"""
        if record.state not in (WAITING, RUNNING):
            return
        folder = self.folder_of(record)
        end = folder.end()
        if end is None and record.state == RUNNING and not self._launcher.alive(record):
            end = folder.end()  # written between the two looks
            if end is None:
                asked = record.id in self._cancelled  # so early that the agent knew no signal yet
                message = "It was cancelled." if asked else "What ran the workers was killed. See agent.log."
                end = {"t": burst.END, "at": time.time(), "outcome": burst.CANCELLED if asked else burst.LOST, "message": message}
                self._note_end(record, end)
        if end is not None:
            self._has_ended(record, end)

    def _note_end(self, record: Record, end: dict[str, Any]) -> None:
        """Where no agent has."""
        try:
            self.folder_of(record).note(end)
        except OSError as exc:
            log.warning("the end of burst %s can't be written down: %s", record.name, exc)

    def _has_ended(self, record: Record, end: dict[str, Any]) -> None:
        """Its GPUs are free from now on, whatever became of its folder."""
        record.state, record.outcome, record.message = ENDED, str(end.get("outcome")), str(end.get("message", ""))
        record.ended = float(end.get("at") or time.time())
        self._launcher.ended(record)
        self._sizing.end(record)
        self._tell("ended", record)
        try:
            self.folder_of(record).save(record)
        except OSError as exc:
            log.warning("that burst %s has ended can't be written down: %s", record.name, exc)

    def _become(self, record: Record, state: str) -> None:
        record.state = state
        self.folder_of(record).save(record)
        self._tell("begun" if state == RUNNING else "waits", record)

    def _tell(self, action: str, record: Record) -> None:
        self._broker.news.tell(
            BURST, action, burst_id=record.id, name=record.name, kernel_id=record.kernel_id, user=record.user, engine=record.engine,
            workers=record.workers, gpus_per_worker=record.gpus, reason=record.outcome or "", message=record.message,
        )  # fmt: skip

    async def _look_after(self) -> None:
        while True:
            for record in list(self._records.values()):
                try:
                    self._refresh(record)
                    if record.state == WAITING and not record.detach and not self._launcher.asked_still(record):
                        self.over(record, burst.CANCELLED, "The kernel that asked for it has ended or was restarted.")
                    if record.state == RUNNING:
                        self._launcher.look(record)
                    if self._expired(record, time.time()):
                        self.forget(record)
                except (OSError, ElasticError) as exc:
                    log.warning("burst %s: %s", record.name, exc)
            self._sizing.look(list(self._records.values()), time.monotonic())
            await asyncio.sleep(ROUND)

    def _expired(self, record: Record, now: float) -> bool:
        if record.state == NEW:
            return now - record.created > UNFINISHED
        keep = self._settings.keep_results
        return record.state == ENDED and keep is not None and now - (record.ended or now) > keep


def _root(folder: str, owner: str) -> Path:
    """Where the bursts of pods are kept. Raises ``SettingError``."""
    root = Path(folder or Path(jupyter_runtime_dir(), "elastic-bursts")).expanduser().absolute() / (owner or "nobody")
    try:
        root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingError(f"The folder {root.parent} can't be made ({exc.strerror}): set Bursts.folder to another.") from None
    return private_folder(root, "Bursts.folder")


def _whole(fields: dict[str, Any], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{name} must be a whole number from {least} to {most}.")
    return value
