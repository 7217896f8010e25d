"""Elastic bursts in pods: carries out what their course is to be and how many workers they should have.

The scheduler has the last word on GPUs; we make a worker more only where it will find one idle, and let it go as soon as a kernel waits.
It must never end a pod whose worker has not left, nor make one anew that was lost.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...broker.broker import Broker
from ...protocol import burst
from ...protocol.errors import ElasticError
from ...settings import Bursts as Settings
from ..chorus import Chorus
from ..course import COURSE, Ending, Event, View
from ..engines import pods as engines
from ..plan import checked_request, make_pod_plan
from ..record import ENDED, RUNNING, Record
from ..size import Situation, wanted
from .absence import Absence
from .asking import answered
from .queueing import Queueing, taken_back
from .quota import Quota
from .standing import Standing

if TYPE_CHECKING:
    from ...backends.kubernetes.jobs.workers import Member
    from ..bursts import Bursts

log = logging.getLogger(__name__)

LOOK = 0.1  # seconds between two looks for a new pod
WAITED = 2.0  # seconds that somebody waits before an elastic burst gives back: idle kernels do so sooner
GIVEN_SECONDS = 20.0  # in which whoever waits gets what was given back: the pod ends, and a slot is bound
PENDING_SECONDS = 30.0  # for a worker more to find its GPU
PORTS = 1000  # groups of one burst have ports of their own, one after the other
LOOK_ROUND = 5.0  # seconds between two looks for idle GPUs


class Elastic:
    """``everywhere``: the gateway may see all pods of the cluster."""

    def __init__(self, bursts: Bursts, broker: Broker, settings: Settings, quota: Quota, standing: Standing, everywhere: bool) -> None:
        self._bursts, self._broker, self._settings, self._standing = bursts, broker, settings, standing
        self._workers, self._quota = broker.backend.jobs.workers, quota
        self._everywhere = everywhere
        self._absence = Absence(broker.backend.jobs, standing)
        self._known: dict[str, Chorus] = {}
        self._processes: dict[tuple[str, int, int], dict[str, Any]] = {}
        self._addresses: dict[tuple[str, str], str] = {}  # by burst and pod
        self._queueing = Queueing(broker.backend.jobs, standing, self._tell)
        self._made: dict[str, dict[int, str]] = {}  # workers more whose Jobs have been made by this gateway, or found: the Jobs' uids
        self._since: dict[tuple[str, int], float] = {}  # since when one has no node
        self._changed: dict[str, float] = {}
        self._given: dict[str, tuple[float, int]] = {}  # when GPUs were given back, and how many
        self._idle: dict[str, tuple[float, int]] = {}  # when it was looked for, and how many workers would find GPUs
        self._idle_since: dict[str, float | None] = {}
        self._ending: dict[str, str] = {}  # why it ends, if its queue hasn't another reason

    def begun(self, record: Record) -> bool:
        """A worker has said something."""
        return bool(self._chorus(record).upto)

    def parts(self, profile: Any, wanted: Any) -> tuple[Any, Any, Any]:
        """The Job of the least, what it was made of, and what each worker more is made of. ``wanted``: of the least."""
        job = self._broker.backend.jobs.job(profile, wanted)
        return self._workers.base(job, profile, wanted.on_demand), wanted, self._workers.flex(job, profile, wanted.on_demand)

    def ended(self, record: Record) -> None:
        self._absence.forget(record)
        self._queueing.forget(record)
        self._clear_results(record)
        for known in (self._known, self._made, self._changed, self._given, self._idle, self._idle_since, self._ending):
            known.pop(record.id, None)
        self._processes = {key: value for key, value in self._processes.items() if key[0] != record.id}
        self._since = {key: value for key, value in self._since.items() if key[0] != record.id}
        self._addresses = {key: value for key, value in self._addresses.items() if key[0] != record.id}

    async def rest(self) -> None:
        """There is no elastic burst with GPUs just now."""
        await self._workers.rest()

    async def prepare(self, record: Record) -> None:
        """Before its base is made: those more for whom there are GPUs just now come with it."""
        if record.gpus and not record.flexed and not record.queue:
            room = await self._workers.room(self._bursts.folder_of(record).job()["flex"], self._everywhere) - record.least
            workers = self._quota.workers(record, min(record.most, record.least + max(0, room)))
            self._more(record, max(0, workers - record.least))

    # behind the door

    async def plan(self, record: Record, rank: int, address: str, pod: str) -> dict[str, Any]:
        """As which of its pods the one of that name begins. What it says of its address is known a second before the cluster says it."""
        return await answered(record, lambda: self._plan(record, pod, address), LOOK)

    def _plan(self, record: Record, pod: str, address: str) -> dict[str, Any]:
        """{} while the cluster hasn't told of the pod."""
        if pod not in self._workers.members(record.id):
            return {}
        chorus = self._chorus(record)
        if pod not in chorus.course.names:
            chorus.decide({"t": COURSE, "do": "know", "name": pod})
        self._addresses[record.id, pod] = address
        request = checked_request(self._bursts.folder_of(record).request())
        plan = make_pod_plan(record, request, self._settings)
        return {"plan": plan.to_json(), "number": chorus.course.number_of(pod)}

    def words(self, record: Record, number: int, since: int, data: bytes) -> dict[str, Any]:
        chorus = self._chorus(record)
        upto = chorus.take(number, since, data)
        if data:
            self.turn(record)
        orders = chorus.course.orders(number)
        for order in orders["groups"]:
            order |= self._processes_of(record, chorus, order)
        return {"next": upto, "over": record.state == ENDED, "orders": orders}

    def _processes_of(self, record: Record, chorus: Chorus, order: dict[str, Any]) -> dict[str, Any]:
        """What a pod runs in a group, ``process`` and those ``beside`` it; {} where the first one's pod is away."""
        key = record.id, order["number"], order["rank"]
        if key not in self._processes:
            members, names = self._workers.members(record.id), chorus.course.names
            addresses = [self._address(record, members.get(names[pod])) for pod in order["pods"]]
            if not addresses[0]:
                return {}
            request = checked_request(self._bursts.folder_of(record).request())
            group = replace(record, workers=len(addresses), id=f"{record.id}.{order['number']}")
            port = engines.PORT + order["number"] % PORTS
            first, *beside = map(vars, engines.of_worker(group, request, order["rank"], addresses, port))
            self._processes[key] = {"process": first, "beside": beside}
        return self._processes[key]

    def _address(self, record: Record, member: Member | None) -> str:
        """ "" where it isn't known, or the pod is over."""
        if member is None or member.over:
            return ""
        return member.address or self._addresses.get((record.id, member.name), "")

    # its course

    def turn(self, record: Record) -> None:
        """All that is due."""
        chorus = self._chorus(record)
        while record.state == RUNNING:
            step = chorus.course.decide(self._view(record, chorus), time.monotonic())
            if step is None:
                return
            if isinstance(step, Ending):
                if record.queue and step.outcome == burst.ERROR and step.failure is None:
                    self._ending[record.id] = step.message  # ``look`` asks whether its queue has taken pods back
                    return
                if step.failure is not None:
                    self._bursts.folder_of(record).note({name: value for name, value in step.failure.items() if name != "group"})
                self._standing.over(record, step.outcome, step.message)
                return
            self._carry_out(record, chorus, step)

    def _carry_out(self, record: Record, chorus: Chorus, step: Event) -> None:
        more: list[Event] = []
        if step["do"] == "end" and step["lost"]:
            more.append(self._note(f"{str(step['why']).splitlines()[0]} Other workers go on {chorus.course.whence()}."))
        chorus.decide(step, *more)
        if step["do"] == "go" and chorus.course.now is not None and record.workers != len(chorus.course.now.pods):
            record.workers = len(chorus.course.now.pods)
            self._bursts.folder_of(record).save(record)

    def _view(self, record: Record, chorus: Chorus) -> View:
        members, usable, lost, seen = self._workers.members(record.id), set(), {}, set()
        for number, name in enumerate(chorus.course.names):
            found = members.get(name)
            if found is None or found.over:
                why = found.trouble.message if found is not None and found.trouble is not None else "A worker's pod was deleted."
                lost[number] = why
                continue
            seen.add(found.flex)
            if self._address(record, found) and not found.ending and number not in chorus.course.leaving and found.flex not in record.going:
                usable.add(number)
        there = {member.flex for member in members.values()}  # nobody knows when a queue lets the others go
        coming = sum(flex not in seen and (flex in there or not record.queue) for flex in record.flex)
        return View(frozenset(usable), lost, record.least, record.least + len(record.flex), coming)

    # looking after one

    async def look(self, record: Record) -> None:
        """What is due by the clock, by the cluster and by who waits."""
        self.turn(record)
        if record.id in self._ending:
            taken = await taken_back(self._broker.backend.jobs, [record.job, *self._made.get(record.id, {}).values()])
            self._standing.over(record, burst.LOST if taken else burst.ERROR, taken or self._ending[record.id])
        if record.state != RUNNING:
            return
        chorus, members = self._chorus(record), self._workers.members(record.id)
        queued = False
        if chorus.course.now is None:
            queued = await self._absence.look(record, members.values(), bool(chorus.course.names))
            if record.state != RUNNING:
                return
        else:
            self._absence.forget(record)
        await self._drop_lost(record, members)
        if queued:
            self._give_up(record)
        else:
            await self._size(record, chorus, members)
        await self._reconcile(record, chorus, members)
        if record.queue:
            there = {member.flex for member in members.values()}
            made = self._made.get(record.id, {})
            await self._queueing.waits(record, [uid for flex, uid in made.items() if flex in record.flex and flex not in there])

    def _give_up(self, record: Record) -> None:
        """The least wait in their queue: those more would have nothing to do meanwhile."""
        if record.flex:
            record.going += record.flex
            record.flex = []
            self._bursts.folder_of(record).save(record)

    async def _drop_lost(self, record: Record, members: Any) -> None:
        """Workers more that are gone, or find no GPU, are no longer wanted until there are idle ones again."""
        now, there = time.monotonic(), {member.flex: member for member in members.values() if member.flex}
        for flex in list(record.flex):
            found = there.get(flex)
            key = record.id, flex
            absent = found is None and flex in self._made.get(record.id, ())
            stuck = found is not None and not found.address
            if not (absent or stuck):
                self._since.pop(key, None)
            late = (absent or stuck) and now - self._since.setdefault(key, now) > PENDING_SECONDS and not (record.queue and absent)
            if late or (found is not None and (found.over or found.ending)):
                if record.queue and found is not None and flex in self._made.get(record.id, ()):
                    await self._queueing.took(record, self._made[record.id][flex])
                record.flex.remove(flex)
                record.going.append(flex)
                self._changed[record.id] = now
                record.pinned = None
                self._bursts.folder_of(record).save(record)
                if late:
                    said = found.trouble.message if found is not None and found.trouble is not None else ""
                    self._tell(record, f"A worker more found no place within {PENDING_SECONDS:g} seconds. {said}".strip())

    async def _size(self, record: Record, chorus: Chorus, members: Any) -> None:
        course = chorus.course
        if not course.can_go_on or (course.turning and course.now is not None):
            return
        now, least = time.monotonic(), record.least
        workers = least + len(record.flex)
        missed, whose, nodes = self._missed(record, members)
        idle = 0 if missed or course.now is None else await self._room(record, members, now)
        since = self._idle_since.get(record.id)
        since = self._idle_since[record.id] = None if not idle else now if since is None else since
        situation = Situation(
            least, record.most, workers, record.gpus, idle * record.gpus, missed, whose, record.pinned,
            self._changed.setdefault(record.id, now), now if since is None else since,
        )  # fmt: skip
        goal, why = wanted(situation, now, self._settings.grow_after)
        goal = max(min(goal, workers), self._quota.workers(record, goal))
        if goal == workers:
            return
        self._changed[record.id] = now
        if goal > workers:
            self._more(record, goal - workers)
        else:
            there = {member.flex: member.node for member in members.values()}
            first = sorted(record.flex, key=lambda flex: (there.get(flex) not in nodes, flex in there, -flex))
            for flex in first[: workers - goal]:
                record.flex.remove(flex)
                record.going.append(flex)
            if missed:
                self._given[record.id] = now, (workers - goal) * record.gpus
        self._tell(record, f"{workers} → {goal} workers: {why}")
        self._bursts.folder_of(record).save(record)
        self.turn(record)

    def _missed(self, record: Record, members: Any) -> tuple[int, str, set[str]]:
        """GPUs that others wait for and could have from workers beyond the least, whose, and on which nodes."""
        if not record.gpus or not record.flex:
            return 0, "", set()
        waiting = self._broker.guests.waiting(WAITED)
        nodes = {member.node for member in members.values() if member.flex in record.flex}
        ours = ("", self._workers.resource(self._bursts.folder_of(record).job()["flex"]))
        helped = [each for each in waiting if each.node in nodes and each.resource in ours]
        at, given = self._given.get(record.id, (0.0, 0))
        given = given if time.monotonic() - at < GIVEN_SECONDS else 0
        return max(0, sum(each.count for each in helped) - given), ", ".join(each.label for each in helped), {each.node for each in helped}

    async def _room(self, record: Record, members: Any, now: float) -> int:
        """For how many workers more there are idle GPUs; kernels that wait come first, and those that have been made but have no pod."""
        if not record.gpus or record.least + len(record.flex) >= record.most or self._broker.guests.waiting(0.0):
            return 0
        at, found = self._idle.get(record.id, (0.0, 0))
        if now - at >= LOOK_ROUND or not at:
            found = await self._workers.room(self._bursts.folder_of(record).job()["flex"], self._everywhere)
            self._idle[record.id] = now, found
        there = {member.flex for member in members.values()}
        return max(0, found - sum(flex not in there for flex in record.flex))

    async def _reconcile(self, record: Record, chorus: Chorus, members: Any) -> None:
        """Jobs of workers more are as they should be."""
        made = self._made.setdefault(record.id, {})
        for flex in [each for each in record.flex if each not in made]:
            try:
                made[flex] = await self._workers.begin(self._bursts.folder_of(record).job()["flex"], flex, record.job)
            except ElasticError as exc:
                if exc.reason == "api_unavailable":
                    raise  # it is tried again
                record.flex.remove(flex)
                self._changed[record.id] = time.monotonic()
                self._tell(record, f"The cluster refuses a worker more: {exc}")
                self._bursts.folder_of(record).save(record)
        course = chorus.course
        needed = {course.names[pod] for crew in (course.now, course.next) if crew is not None for pod in crew.pods}
        busy = {member.flex for name, member in members.items() if name in needed and not member.over}
        for flex in [each for each in record.going if each not in busy]:
            await self._workers.end(record.id, flex)
            record.going.remove(flex)
            made.pop(flex, None)
            self._since.pop((record.id, flex), None)
            self._bursts.folder_of(record).save(record)

    # inside

    def _chorus(self, record: Record) -> Chorus:
        if record.id not in self._known:
            self._known[record.id] = Chorus.of(self._bursts.folder_of(record), record.restartable, record.procs)
        return self._known[record.id]

    def _more(self, record: Record, count: int) -> None:
        self._idle.pop(record.id, None)  # they are no longer idle
        record.flex += range(record.flexed + 1, record.flexed + count + 1)
        record.flexed += count

    def _clear_results(self, record: Record) -> None:
        """What a rank gave back in a group that was lost is nobody's result."""
        course = self._chorus(record).course
        world = len(course.now.pods) * record.procs if course.now is not None else 0
        for file in (self._bursts.folder_of(record).path / burst.RESULTS).glob("*"):
            if int(file.name.partition(".")[0]) >= world:
                file.unlink(missing_ok=True)
        for file in self._bursts.folder_of(record).path.glob("state.*"):
            file.unlink(missing_ok=True)

    def _note(self, text: str) -> Event:
        return {"t": burst.NOTE, "at": time.time(), "text": text}

    def _tell(self, record: Record, text: str) -> None:
        self._bursts.folder_of(record).note(self._note(text))
