"""Bursts as Jobs of a cluster: made, followed through what their ranks say and what the cluster says of their pods, ended.

It is what stands behind the door, too: ranks fetch their plan here and bring their words. It must never begin a cell a second time, nor
leave a Job of a burst that has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...backends.base import Supervisor
from ...broker.broker import Broker
from ...protocol import burst
from ...protocol.errors import BadRequest, BrokerUnavailable, ElasticError
from ...settings import Bursts as Settings
from .. import certificate
from ..door import Door
from ..engines import keys
from ..engines import pods as engines
from ..gathering import Gathered
from ..plan import checked_request, make_rank_plan
from ..record import ENDED, NEW, RUNNING, Record
from ..verdict import verdict
from .elastic import ELASTIC_IN_PODS, Elastic
from .quota import Quota

if TYPE_CHECKING:
    from ..bursts import Bursts

log = logging.getLogger(__name__)

JOBS = "job"  # what is launched where nothing else was asked for
WITH_ROLES = (JOBS, "jobset")  # kinds in which roles have Jobs of their own
JOB, TOKEN, KEYS = "job.json", "token", "keys.json"  # files in a burst's folder
PLAN_SECONDS = 20.0  # for which a rank's question for its plan is left open
LOOK = 0.03  # seconds between two looks at the pods meanwhile
LAST_WORDS = 0.5  # seconds in which other ranks may say that they failed earlier
BESIDE = 3.0  # the same, where what failed doesn't lead: it may be that those that do are through
PODS_SECONDS = 3.0  # for what a pod has said to arrive after it has ended, and for a Job's pods to be made
LEAVING = 4.0  # seconds for ranks to end after a cancel; a cell that was interrupted waits a little longer
MISSING = 20.0  # seconds for which a kernel may be out of sight, as after a start of the gateway
GONE = "The kernel that asked for it has ended or was restarted."


class Jobs:
    """``bursts``: whose launcher this is."""

    elastic, leases = True, False

    def __init__(self, bursts: Bursts, broker: Broker, settings: Settings) -> None:
        self._bursts, self._broker, self._settings = bursts, broker, settings
        self._jobs = broker.backend.jobs
        self._door = Door(self, settings.capsule_bytes)
        self._closed = "The gateway is still coming up."  # why no burst can be had
        self._url = self._certificate = ""
        self._prepared: dict[str, tuple[Any, Any, dict[str, Any]]] = {}  # manifest, what it was made of, those of others
        self._gathered: dict[str, Gathered] = {}
        self._here: dict[str, dict[int, str]] = {}  # by burst and rank: the address of the pod that asks for its plan, or has it
        self._given: dict[str, dict[int, str]] = {}  # by burst and rank: the address of the pod that has its plan
        self._cancelled: set[str] = set()
        self._since: dict[tuple[str, str], float] = {}  # since when something has been so, of a burst
        self._said: dict[str, str] = {}  # what the cell was told last that it waits for
        self._busy: set[str] = set()
        self._quota = Quota(broker)
        self._held_back: set[str] = set()  # by their user's quota
        self._elastic = Elastic(bursts, broker, settings, self._quota, self._over, self._waits, self._jobs.sees_all)
        self._tasks: set[asyncio.Task[None]] = set()

    # its life

    async def open(self) -> None:
        """Bursts are one thing of many that a gateway does: where they can't be had, it says so to those who want one."""
        try:
            kept = await self._jobs.kept("bursts", self._make_certificate)
            self._open_door(kept["certificate"], kept["key"])
            self._certificate = kept["certificate"]
            self._url = self._settings.address or f"https://{_bracketed(self._jobs.address())}:{self._door.port}"
            for burst_id in await self._jobs.ids() - {each.id for each in self._bursts.all() if each.state == RUNNING}:
                log.warning("the Job of burst %s is nobody's any more: deleting it", burst_id)
                await self._jobs.end(burst_id)
            self._closed = ""
        except (ElasticError, OSError, ImportError, KeyError) as exc:
            self._closed = f"Cells can't run on many workers here: {exc}. The gateway's log says since when."
            log.warning(self._closed)

    def _open_door(self, certificate: str, key: str) -> None:
        root, before = self._bursts.root, 0
        files = root / "door.crt", root / "door.key"
        for file, text in zip(files, (certificate, key), strict=True):
            with open(file, "w", opener=burst.private) as out:
                out.write(text)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # ranks that run look for the gateway where it was
            before = int(burst.read_json(root / "door.json")["port"])
        try:
            self._door.open("", self._settings.port or before, *files)
        except OSError:
            if self._settings.port or not before:
                raise
            self._door.open("", 0, *files)
        burst.write_json(root / "door.json", {"port": self._door.port})

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._elastic.rest()
        await self._door.close()

    def _make_certificate(self) -> dict[str, str]:
        made, key = certificate.make(self._broker.owner)
        return {"certificate": made, "key": key}

    # for the bursts

    def prepare(self, record: Record, supervisor: Supervisor, to_run: bool = True) -> None:
        if self._closed:
            raise BrokerUnavailable(self._closed)
        if record.launcher == "local":
            raise BadRequest("Workers have pods of their own here, not processes in the kernel's: leave -l local out.")
        shape = self._jobs.checked_shape(_shape(record), to_run)
        if record.elastic and record.engine not in ELASTIC_IN_PODS:
            elastic = ", ".join(ELASTIC_IN_PODS)
            raise BadRequest(f"In pods, workers of -e {record.engine} keep their number: -w {record.least}, say. Elastic: {elastic}.")
        if record.elastic and shape != JOBS:
            raise BadRequest(f"Workers of -l {shape} keep their number: -w {record.least}, say, or leave -l out.")
        record.workers = record.least
        first, others = engines.jobs(record)
        if others and shape not in WITH_ROLES:
            raise BadRequest(f"-l {shape} has no roles beside its workers in this version; there is -l {', -l '.join(WITH_ROLES)}.")
        if others and record.queue and shape == JOBS:
            raise BadRequest("Kueue would let each role go by itself: with --queue, roles need -l jobset.")
        if refused := self._quota.never(record):
            raise BadRequest(refused)
        profile = self._jobs.profile(supervisor)
        if record.least_gpus and not profile.gpu_resource:
            raise BadRequest(f"Kernels of the profile {profile.name!r} have no GPUs, nor have their workers: -g 0, or another kernel.")
        link = self._broker.links.get(record.kernel_id)
        record.starts = link.state.starts if link is not None else 0
        wanted = self._jobs.wanted(
            supervisor, record.id, first.count, first.gpus, record.detach, record.timeout, record.queue, shape, record.on_demand
        )  # fmt: skip
        self._prepared[record.id] = self._jobs.job(profile, wanted), wanted, {"roles": self._jobs.roles(profile, wanted, others)}
        if record.elastic:
            job, wanted, flex = self._elastic.parts(profile, wanted)
            self._prepared[record.id] = job, wanted, {"flex": flex}

    def usable(self, supervisor: Supervisor, gpus: int) -> int:
        return gpus if self._jobs.profile(supervisor).gpu_resource else 0

    def access(self, record: Record) -> dict[str, Any]:
        return {"access": {"url": self._url, "certificate": self._certificate, "token": self._token(record), "burst": record.id}}

    def launch(self, record: Record) -> None:
        checked_request(self._bursts.folder_of(record).request())
        found = self._prepared.pop(record.id, None)
        if found is None:
            raise BadRequest("The gateway was started anew while the cell was on its way: run the cell again.")
        job, wanted, more = found
        burst.write_json(self._bursts.folder_of(record).path / JOB, {"job": job, "wanted": asdict(wanted), **more})
        asyncio.get_running_loop().call_soon(self._look_soon, record)

    def order(self, record: Record, why: str) -> None:
        pass  # it is looked after each second

    def alive(self, record: Record) -> bool:
        return True  # it ends by what is found out about it

    def asked_still(self, record: Record) -> bool:
        link = self._broker.links.get(record.kernel_id)
        if link is None:
            return not self._lasts(record, "kernel missing", True, MISSING)
        self._lasts(record, "kernel missing", False, MISSING)
        return link.state.starts == record.starts and link.state.alive

    def cancel(self, record: Record) -> None:
        if record.id not in self._cancelled:
            self._cancelled.add(record.id)
            self._soon(self._cancel(record))

    def ended(self, record: Record) -> None:
        self._quota.end(record)
        self._held_back.discard(record.id)
        if record.elastic:
            self._elastic.ended(record)
            if not any(each.elastic and each.gpus and each.state == RUNNING for each in self._bursts.all() if each.id != record.id):
                self._soon(self._elastic.rest())
        for known in (self._gathered, self._here, self._given, self._said, self._prepared):
            known.pop(record.id, None)
        for key in [key for key in self._since if key[0] == record.id]:
            del self._since[key]
        self._cancelled.discard(record.id)
        self._soon(self._end_job(record.id, _shape(record)))

    def preview(self, record: Record, supervisor: Supervisor) -> list[dict[str, Any]]:
        self.prepare(record, supervisor, to_run=False)
        return self._objects(*self._prepared.pop(record.id))

    def manifests(self, record: Record) -> list[dict[str, Any]]:
        try:
            kept = burst.read_json(self._bursts.folder_of(record).path / JOB)
        except (OSError, ValueError):
            raise BadRequest(f"Of {record.name} no manifests are kept.") from None
        return self._objects(kept["job"], self._jobs.again(kept["wanted"]), kept)

    def _objects(self, job: Any, wanted: Any, more: dict[str, Any]) -> list[dict[str, Any]]:
        return [*self._jobs.shown(job, wanted, more.get("roles") or {}), *filter(None, [more.get("flex")])]

    # looking after one

    def look(self, record: Record) -> None:
        if record.id in self._busy:
            return
        if not record.detach and not self.asked_still(record):
            self._over(record, burst.CANCELLED, GONE)
        elif not record.job and record.id not in self._cancelled:
            first = next((each for each in self._bursts.all() if self._comes_before(each, record)), None)
            if first is not None:
                self._waits(record, f"waits until {first.name} has all of its GPUs")
            else:
                self._soon(self._alone(record, self._make(record)))
        else:
            self._soon(self._alone(record, self._judge(record)))

    async def _alone(self, record: Record, work: Coroutine[Any, Any, None]) -> None:
        """One look at a time."""
        self._busy.add(record.id)
        try:
            await work
        except (OSError, ElasticError) as exc:
            log.warning("burst %s: %s", record.name, exc)
        finally:
            self._busy.discard(record.id)

    def _look_soon(self, record: Record) -> None:
        if record.state == RUNNING:
            self.look(record)

    def _comes_before(self, other: Record, record: Record) -> bool:
        """Of those that need GPUs one after the other takes them: two that each had half would wait for ever."""
        if (
            other.state != RUNNING
            or other.id in self._held_back
            or not record.least_gpus
            or not other.least_gpus
            or other.created >= record.created
        ):
            return False
        return len(self._jobs.addresses(other.id)) < (other.least if other.elastic else engines.shape(other).pods)

    async def _make(self, record: Record) -> None:
        kept = burst.read_json(self._bursts.folder_of(record).path / JOB)
        if record.least_gpus:
            with contextlib.suppress(ElasticError):  # what its own kernel has and doesn't use is lent to it
                await self._broker.release(record.kernel_id)
            held_back = self._quota.waits(record)
            (self._held_back.add if held_back else self._held_back.discard)(record.id)
            if held_back:
                self._waits(record, held_back)
                return
        if record.elastic:
            await self._elastic.prepare(record)
        self._quota.hold(record, record.least + len(record.flex))
        try:
            record.job = await self._jobs.make(
                kept["job"], self._jobs.again(kept["wanted"]), self.access(record)["access"], kept.get("roles") or {}
            )
        except BrokerUnavailable as exc:
            self._waits(record, str(exc))
        except ElasticError as exc:
            if exc.reason == "api_unavailable":
                self._waits(record, str(exc))  # it is tried again
            else:
                self._over(record, burst.ERROR, f"The cluster refuses the workers' Job: {exc}")
        else:
            if record.state == RUNNING and record.id not in self._cancelled:
                self._bursts.folder_of(record).save(record)
            else:  # it was cancelled meanwhile
                await self._jobs.end(record.id, _shape(record))

    async def _judge(self, record: Record) -> None:
        """What the cluster says of its pods."""
        pods, gathered = self._jobs.pods(record.id), self._gathered_of(record)
        self._quota.hold(record, record.least + len(record.flex))
        if record.id in self._cancelled:
            if not pods.count:
                self._over(record, burst.CANCELLED, "It was cancelled.")
            return
        if record.elastic:
            await self._elastic.look(record)
            return
        few = self._lasts(record, "few pods", pods.count < engines.shape(record).pods, PODS_SECONDS)
        if few and not pods.count and self._begun(record):
            await self._taken(record, "Its pods were deleted in the cluster.")
            return
        if record.queue and not pods.count:
            self._waits(record, f"waits in the queue {record.queue}. {await self._jobs.queued(record.job)}".strip())
            return
        for rank, trouble in sorted(pods.trouble.items()):
            told = rank in gathered.ended or rank in gathered.failed
            again = trouble.reason in ("disrupted", "evicted", "node_lost", "deleted") and not self._begun(record)
            if self._lasts(record, f"rank {rank}", trouble.final and not told and not again, PODS_SECONDS):
                words = await self._jobs.log(record.id, rank) if trouble.reason in ("exited", "oom", "init", "container") else ""
                self._over(record, burst.ERROR, trouble.message + (f"\nIts last words:\n{words}" if words else ""))
                return
        if len(pods.addresses) < engines.shape(record).pods and not self._begun(record):
            refused = await self._jobs.refusal(record.id, _shape(record)) if few else ""
            why = refused or next((each.message for each in pods.trouble.values()), "")
            self._waits(record, f"{len(pods.addresses)}/{engines.shape(record).pods} pods run. {why}".strip())

    # behind the door

    def token(self, burst_id: str) -> str:
        record = self._bursts.known(burst_id)
        return self._token(record) if record is not None else ""

    def folder(self, burst_id: str) -> Path:
        return self._bursts.folder_of(self._bursts.find(burst_id)).path

    def is_new(self, burst_id: str) -> bool:
        return self._bursts.find(burst_id).state == NEW

    async def plan(self, burst_id: str, rank: int, address: str, pod: str) -> dict[str, Any]:
        """What a rank says of itself is known a second before the cluster says it."""
        record = self._bursts.find(burst_id)
        if record.elastic:
            return await self._elastic.plan(record, pod, address)
        here = self._here.setdefault(burst_id, {})
        here[rank] = address
        try:
            return await self._plan(burst_id, rank, address)
        finally:
            if here.get(rank) == address and rank not in self._given.get(burst_id, {}):
                del here[rank]

    async def _plan(self, burst_id: str, rank: int, address: str) -> dict[str, Any]:
        record, end = self._bursts.find(burst_id), time.monotonic() + PLAN_SECONDS
        count = engines.shape(record).pods
        if not 0 <= rank < count:
            raise BadRequest(f"There is no rank {rank}: there are {count}.")
        while time.monotonic() < end and record.state == RUNNING:
            given = self._given.setdefault(burst_id, {})
            addresses = {**self._jobs.addresses(burst_id), **self._here.get(burst_id, {})}
            if len(addresses) == count:
                if given.setdefault(rank, address) != address:
                    why = f"The cluster has taken rank {rank}'s pod away, and a cell isn't begun a second time unasked. Run it again."
                    self._over(record, burst.LOST, why)
                    break
                request = checked_request(self._bursts.folder_of(record).request())
                places = [addresses[each] for each in range(count)]
                processes = engines.processes(record, request, rank, places)
                files = {**engines.files(record, places, request), **self._keys(record)}
                return {"plan": make_rank_plan(record, request, processes, self._settings.journal_bytes // count, files).to_json()}
            await asyncio.sleep(LOOK)
        if record.state == ENDED:
            raise ElasticError(f"{record.name} is over.", reason="no_such_burst")
        return {}

    def words(self, burst_id: str, rank: int, since: int, data: bytes) -> dict[str, Any]:
        record = self._bursts.find(burst_id)
        if record.state != RUNNING:
            return {"next": since + len(data), "over": True}
        if record.elastic:
            return {**self._elastic.words(record, rank, since, data), "cancel": record.id in self._cancelled}
        upto = self._gathered_of(record).take(rank, since, data)
        if data:
            self._decide(record)
        return {"next": upto, "over": record.state == ENDED, "cancel": record.id in self._cancelled}

    # what becomes of one

    def _decide(self, record: Record) -> None:
        """By what its ranks have said."""
        gathered, leads = self._gathered_of(record), engines.shape(record).leads
        bad = gathered.failed.keys() | {pod for pod, end in gathered.ended.items() if end["outcome"] != burst.OK}
        if leads <= gathered.ended.keys():
            self._conclude(record)
        elif bad and record.id not in self._cancelled:
            asyncio.get_running_loop().call_later(LAST_WORDS if bad & leads else BESIDE, self._conclude, record)

    def _conclude(self, record: Record) -> None:
        if record.state != RUNNING:
            return
        if record.id in self._cancelled:
            self._over(record, burst.CANCELLED, "It was cancelled.")
            return
        outcome, message, failure = verdict(self._gathered_of(record), engines.shape(record).leads)
        if outcome == burst.LOST:  # its agent knows only that it was told to end
            message = next((each.message for each in self._jobs.pods(record.id).trouble.values() if each.final), message)
            if record.queue:
                self._soon(self._taken(record, message))
                return
        if failure is not None:
            self._bursts.folder_of(record).note(failure)
        self._over(record, outcome, message)

    async def _taken(self, record: Record, message: str) -> None:
        """Its pods are gone; it may be that its queue wanted them back."""
        taken = await self._jobs.queued(record.job) if record.queue else ""
        self._over(record, burst.LOST, f"Kueue took its pods away: {taken}. Run the cell again to queue it anew." if taken else message)

    def _over(self, record: Record, outcome: str, message: str) -> None:
        if record.state == RUNNING:
            self._bursts.over(record, outcome, message)

    async def _cancel(self, record: Record) -> None:
        try:
            await self._jobs.end(record.id, _shape(record))
        except ElasticError as exc:
            log.warning("burst %s: %s", record.name, exc)
        if self._begun(record):
            await asyncio.sleep(LEAVING)
        self._conclude(record)

    async def _end_job(self, burst_id: str, shape: str) -> None:
        while True:
            try:
                await self._jobs.end(burst_id, shape)
                return
            except ElasticError as exc:
                log.warning("the Job of burst %s can't be deleted yet: %s", burst_id, exc)
            await asyncio.sleep(5.0)

    # inside

    def _gathered_of(self, record: Record) -> Gathered:
        if record.elastic:
            return self._elastic.chorus(record)
        if record.id not in self._gathered:
            self._gathered[record.id] = Gathered.again(self._bursts.folder_of(record), *engines.shape(record)[::2])
        return self._gathered[record.id]

    def _begun(self, record: Record) -> bool:
        """A rank may have begun its cell."""
        return bool(self._given.get(record.id) or self._gathered_of(record).upto)

    def _keys(self, record: Record) -> dict[str, str]:
        """By which members of this burst know one another, as files; made once."""
        file = self._bursts.folder_of(record).path / KEYS
        with contextlib.suppress(FileNotFoundError):
            return {name: str(text) for name, text in burst.read_json(file).items()}
        made = keys.make(record.engine, record.name)
        burst.write_json(file, made)
        return made

    def _token(self, record: Record) -> str:
        file = self._bursts.folder_of(record).path / TOKEN
        try:
            return file.read_text()
        except FileNotFoundError:
            token = secrets.token_urlsafe(32)
            with open(file, "w", opener=burst.private) as out:
                out.write(token)
            return token

    def _waits(self, record: Record, text: str) -> None:
        if record.state == RUNNING and self._said.get(record.id) != text:
            self._said[record.id] = text
            self._bursts.folder_of(record).note({"t": burst.WAITS, "at": time.time(), "text": text})

    def _lasts(self, record: Record, what: str, so: bool, seconds: float) -> bool:
        """Whether something has been so for so many seconds."""
        if not so:
            self._since.pop((record.id, what), None)
            return False
        return time.monotonic() - self._since.setdefault((record.id, what), time.monotonic()) >= seconds

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _shape(record: Record) -> str:
    return JOBS if record.launcher == "auto" else record.launcher


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
