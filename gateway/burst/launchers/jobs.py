"""Bursts as Jobs of a cluster: made, followed by what their ranks say and what the cluster says of their pods, ended.

It is what stands behind the door, too: ranks fetch their plan here and bring their words. It must never leave a Job of a burst that has
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...backends.base import Supervisor
from ...broker.broker import Broker
from ...protocol import burst
from ...protocol.errors import BadRequest, BrokerUnavailable, ElasticError
from ...settings import Bursts as Settings
from ..door import Door
from ..engines import pods as engines
from ..plan import checked_request
from ..record import NEW, RUNNING, Record
from .elastic import Elastic
from .entrance import Entrance
from .fixed import Fixed
from .kinds import check_roles, check_size, kind_of
from .quota import Quota
from .standing import Standing

if TYPE_CHECKING:
    from ..bursts import Bursts

log = logging.getLogger(__name__)

LEAVING = 4.0  # seconds for ranks to end after a cancel; a cell that was interrupted waits a little longer
MISSING = 20.0  # seconds for which a kernel may be out of sight, as after a start of the gateway
AGAIN = 5.0  # seconds until a Job that could not be deleted is tried again
GONE = "The kernel that asked for it has ended or was restarted."


class Jobs:
    """``bursts``: whose launcher this is."""

    elastic, leases = True, False

    def __init__(self, bursts: Bursts, broker: Broker, settings: Settings) -> None:
        self._bursts, self._broker = bursts, broker
        self._jobs = broker.backend.jobs
        self._entrance = Entrance(bursts, broker.backend, settings, broker.owner, Door(self, settings.capsule_bytes))
        self._closed = "The gateway is still coming up."  # why no burst can be had
        self._prepared: dict[str, tuple[Any, Any, dict[str, Any]]] = {}  # manifest, what it was made of, those of others
        self._busy: set[str] = set()
        self._held_back: set[str] = set()  # by their user's quota
        self._tasks: set[asyncio.Task[None]] = set()
        self._quota, self._standing = Quota(broker), Standing(bursts)
        self._fixed = Fixed(bursts, broker.backend, settings, self._standing, self._soon)
        self._elastic = Elastic(bursts, broker, settings, self._quota, self._standing, self._jobs.sees_all)

    # its life

    async def open(self) -> None:
        """Bursts are one thing of many that a gateway does: where they can't be had, it says so to those who want one."""
        try:
            await self._entrance.open()
            for burst_id in await self._jobs.ids() - {each.id for each in self._bursts.all() if each.state == RUNNING}:
                log.warning("the Job of burst %s is nobody's any more: deleting it", burst_id)
                await self._jobs.end(burst_id)
            self._closed = ""
        except (ElasticError, OSError, ImportError, KeyError) as exc:
            self._closed = f"Cells can't run on many workers here: {exc}. The gateway's log says since when."
            log.warning(self._closed)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._elastic.rest()
        await self._entrance.close()

    # for the bursts

    def prepare(self, record: Record, supervisor: Supervisor, to_run: bool = True) -> None:
        if self._closed:
            raise BrokerUnavailable(self._closed)
        if record.launcher == "local":
            raise BadRequest("Workers have pods of their own here, not processes in the kernel's: leave -l local out.")
        kind = self._jobs.checked_shape(kind_of(record), to_run)
        check_size(record, kind)
        record.workers = record.least
        first, others = engines.jobs(record)
        check_roles(record, kind, others)
        if refused := self._quota.never(record):
            raise BadRequest(refused)
        profile = self._jobs.profile(supervisor, record.image)
        if record.least_gpus and not profile.gpu_resource:
            raise BadRequest(f"Kernels of the profile {profile.name!r} have no GPUs, nor have their workers: -g 0, or another kernel.")
        link = self._broker.links.get(record.kernel_id)
        record.starts = link.state.starts if link is not None else 0
        wanted = self._jobs.wanted(
            supervisor, record.id, first.count, first.gpus, record.detach, record.timeout, record.queue, kind, record.on_demand,
            record.procs,
        )  # fmt: skip
        self._prepared[record.id] = self._jobs.job(profile, wanted), wanted, {"roles": self._jobs.roles(profile, wanted, others)}
        if record.elastic:
            job, wanted, flex = self._elastic.parts(profile, wanted)
            self._prepared[record.id] = job, wanted, {"flex": flex}

    def usable(self, supervisor: Supervisor, gpus: int) -> int:
        return gpus if self._jobs.profile(supervisor).gpu_resource else 0

    def access(self, record: Record) -> dict[str, Any]:
        return {"access": self._entrance.access(record)}

    def launch(self, record: Record) -> None:
        checked_request(self._bursts.folder_of(record).request())
        found = self._prepared.pop(record.id, None)
        if found is None:
            raise BadRequest("The gateway was started anew while the cell was on its way: run the cell again.")
        job, wanted, more = found
        self._bursts.folder_of(record).keep_job({"job": job, "wanted": asdict(wanted), **more})
        asyncio.get_running_loop().call_soon(self._look_soon, record)

    def order(self, record: Record, why: str) -> None:
        pass  # it is looked after each second

    def alive(self, record: Record) -> bool:
        return True  # it ends by what is found out about it

    def asked_still(self, record: Record) -> bool:
        link = self._broker.links.get(record.kernel_id)
        if link is None:
            return not self._standing.lasts(record, "kernel missing", True, MISSING)
        self._standing.lasts(record, "kernel missing", False, MISSING)
        return link.state.starts == record.starts and link.state.alive

    def cancel(self, record: Record) -> None:
        if record.id not in self._standing.cancelled:
            self._standing.cancelled.add(record.id)
            self._soon(self._cancel(record))

    def ended(self, record: Record) -> None:
        self._quota.end(record)
        self._held_back.discard(record.id)
        self._course(record).ended(record)
        if record.elastic and not any(self._needs_idle(each) for each in self._bursts.all() if each.id != record.id):
            self._soon(self._elastic.rest())
        self._prepared.pop(record.id, None)
        self._standing.forget(record)
        self._soon(self._end_job(record.id, kind_of(record)))

    def preview(self, record: Record, supervisor: Supervisor) -> list[dict[str, Any]]:
        self.prepare(record, supervisor, to_run=False)
        return self._objects(*self._prepared.pop(record.id))

    def manifests(self, record: Record) -> list[dict[str, Any]]:
        kept = self._bursts.folder_of(record).job()
        return self._objects(kept["job"], self._jobs.again(kept["wanted"]), kept)

    def _objects(self, job: Any, wanted: Any, more: dict[str, Any]) -> list[dict[str, Any]]:
        return [*self._jobs.shown(job, wanted, more.get("roles") or {}), *filter(None, [more.get("flex")])]

    # looking after one

    def look(self, record: Record) -> None:
        if record.id in self._busy:
            return
        if not record.detach and not self.asked_still(record):
            self._standing.over(record, burst.CANCELLED, GONE)
        elif not record.job and record.id not in self._standing.cancelled:
            first = next((each for each in self._bursts.all() if self._comes_before(each, record)), None)
            if first is not None:
                self._standing.waits(record, f"waits until {first.name} has all of its GPUs")
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
        if other.queue and not self._jobs.pods(other.id).count:  # it takes nothing while it waits in a queue of the cluster
            return False
        return len(self._jobs.addresses(other.id)) < (other.least if other.elastic else engines.shape(other).pods)

    async def _make(self, record: Record) -> None:
        kept = self._bursts.folder_of(record).job()
        if record.least_gpus:
            with contextlib.suppress(ElasticError):  # what its own kernel has and doesn't use is lent to it
                await self._broker.release(record.kernel_id)
            held_back = self._quota.waits(record)
            (self._held_back.add if held_back else self._held_back.discard)(record.id)
            if held_back:
                self._standing.waits(record, held_back)
                return
        if record.elastic:
            await self._elastic.prepare(record)
        self._quota.hold(record, record.least + len(record.flex))
        try:
            record.job = await self._jobs.make(
                kept["job"], self._jobs.again(kept["wanted"]), self._entrance.access(record), kept.get("roles") or {}
            )
        except BrokerUnavailable as exc:
            self._standing.waits(record, str(exc))
        except ElasticError as exc:
            if exc.reason == "api_unavailable":
                self._standing.waits(record, str(exc))  # it is tried again
            else:
                self._standing.over(record, burst.ERROR, f"The cluster refuses the workers' Job: {exc}")
        else:
            if record.state == RUNNING and record.id not in self._standing.cancelled:
                self._bursts.folder_of(record).save(record)
            else:  # it was cancelled meanwhile
                await self._jobs.end(record.id, kind_of(record))

    async def _judge(self, record: Record) -> None:
        """What the cluster says of its pods."""
        self._quota.hold(record, record.least + len(record.flex), self._jobs.workers.gpus(record.id) if record.least_gpus else {})
        if record.id not in self._standing.cancelled:
            await self._course(record).look(record)
        elif not self._jobs.pods(record.id).count:
            self._standing.over(record, burst.CANCELLED, "It was cancelled.")

    # behind the door

    def token(self, burst_id: str) -> str:
        record = self._bursts.known(burst_id)
        return self._entrance.token(record) if record is not None else ""

    def folder(self, burst_id: str) -> Path:
        return self._bursts.folder_of(self._bursts.find(burst_id)).path

    def is_new(self, burst_id: str) -> bool:
        return self._bursts.find(burst_id).state == NEW

    def most_ranks(self, burst_id: str) -> int:
        return self._bursts.find(burst_id).most_ranks

    async def plan(self, burst_id: str, rank: int, address: str, pod: str) -> dict[str, Any]:
        record = self._bursts.find(burst_id)
        return await self._course(record).plan(record, rank, address, pod)

    def words(self, burst_id: str, rank: int, since: int, data: bytes) -> dict[str, Any]:
        record = self._bursts.find(burst_id)
        if record.state != RUNNING:
            return {"next": since + len(data), "over": True}
        return {**self._course(record).words(record, rank, since, data), "cancel": record.id in self._standing.cancelled}

    # inside

    def _course(self, record: Record) -> Fixed | Elastic:
        return self._elastic if record.elastic else self._fixed

    @staticmethod
    def _needs_idle(record: Record) -> bool:
        return record.elastic and bool(record.gpus) and record.state == RUNNING

    async def _cancel(self, record: Record) -> None:
        try:
            await self._jobs.end(record.id, kind_of(record))
        except ElasticError as exc:
            log.warning("burst %s: %s", record.name, exc)
        if self._course(record).begun(record):
            await asyncio.sleep(LEAVING)
        self._standing.over(record, burst.CANCELLED, "It was cancelled.")

    async def _end_job(self, burst_id: str, kind: str) -> None:
        while True:
            try:
                await self._jobs.end(burst_id, kind)
                return
            except ElasticError as exc:
                log.warning("the Job of burst %s can't be deleted yet: %s", burst_id, exc)
            await asyncio.sleep(AGAIN)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
