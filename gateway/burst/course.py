"""Which pods of an elastic burst are its workers, one group after the other, and what they are told. Pure.

Everything that it knows came as an event: a pod's word, or a decision of its own; told the same events again, as by the next gateway, it
stands where it stood. It must never let a group begin before all of the one before have left or are lost, nor begin a cell without a
commit a second time unasked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocol import burst
from ..protocol.losses import Losses
from ..protocol.peers import follows

Event = dict[str, Any]

COURSE = "course"  # an event: what was decided, by its ``do``
LAST_WORDS = 1.0  # seconds in which others may say that they failed earlier, or turn out to be gone
PEER_SECONDS = 20.0  # for a pod that others miss to be seen as gone
PATIENCE = 20.0  # seconds for all workers to come to a commit, from the first that has; then they go on, and are asked again later
AGAIN = 5.0  # seconds until they are
SETTLE = 15.0  # seconds for which a first new pod waits for the others, so that workers change once


@dataclass(frozen=True)
class View:
    """What the cluster says. ``usable``: pods that run and may be workers, by number; ``lost``: those that are gone, and why; ``coming``:
    how many more are on their way. ``least``, ``wanted``: workers."""

    usable: frozenset[int]
    lost: Mapping[int, str]
    least: int
    wanted: int
    coming: int = 0


@dataclass
class Crew:
    """One group of workers: ``pods`` by rank."""

    number: int
    pods: list[int]
    begun: bool = False
    state: str | None = None  # the file that it goes on from
    ready: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    through: set[int] = field(default_factory=set)  # pods of which not all ranks are done, but one is
    failed: dict[int, Event] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """How the burst ends. ``failure``: the event of the rank whose cell failed first."""

    outcome: str
    message: str
    failure: Event | None = None


class Course:
    """``restartable``: without a commit, too, other workers may begin anew."""

    def __init__(self, restartable: bool) -> None:
        self._restartable = restartable
        self.now: Crew | None = None
        self.next: Crew | None = None
        self.names: list[str] = []  # of pods, by number
        self.leaving: set[int] = set()  # pods that the cluster has told to end
        self.commits = False
        self.saved: tuple[str, str] | None = None  # file, and where the loops were
        self.asked, self.open, self.until = 0, False, None  # the newest question, whether it is unanswered, its answer
        self._at: dict[int, int] = {}  # commits of those that wait for the answer
        self._groups, self._losses = 0, Losses()
        self._ended = ""  # by a pod itself: why
        self._since: dict[str, float] = {}

    @property
    def can_go_on(self) -> bool:
        return self.commits or self._restartable

    @property
    def turning(self) -> bool:
        """Pods should listen closely."""
        return self.next is not None or self.open or self.until is not None or self.now is None

    def number_of(self, name: str) -> int | None:
        """Of a pod that is known."""
        return self.names.index(name) if name in self.names else None

    # what has happened

    def apply(self, event: Event, pod: int | None = None) -> None:
        """``pod``: whose word it is; None: what was decided here."""
        if event["t"] == COURSE:
            self._decided(event)
        elif pod is not None and event["t"] == burst.LEAVING:
            self.leaving.add(pod)
        elif event["t"] == burst.END:
            self._ended = str(event.get("message", "")) if event.get("outcome") == burst.ERROR else self._ended
        elif pod is not None:
            for crew in (self.now, self.next):
                if crew is not None and crew.number == event.get("group") and pod in crew.pods:
                    self._said(crew, pod, event)

    def _decided(self, event: Event) -> None:
        what = event["do"]
        if what == "know":
            self.names.append(event["name"])
        elif what == "group":
            self._groups = event["number"]
            self.next = Crew(event["number"], list(event["pods"]))
        elif what == "go":
            assert self.next is not None
            self.now, self.next = self.next, None
            self.now.begun, self.now.state = True, event["state"]
            self.open, self.until, self._since = False, None, {}
        elif what == "drop":
            self.next = None
        elif what == "end":
            self.now, self.open, self.until, self._since = None, False, None, {}
            if event["lost"]:
                self._losses.lost()
        elif what == "ask":
            self.asked, self.open, self.until, self._at = event["asked"], True, None, {}
        elif what == "answer":
            self.open, self.until = False, event["until"]

    def _said(self, crew: Crew, pod: int, event: Event) -> None:
        kind = event["t"]
        if kind == burst.READY:
            crew.ready.add(pod)
        elif crew is not self.now:
            if kind == burst.GONE:
                crew.gone[pod] = str(event["text"])
        elif kind == burst.COMMITS:
            self.commits = True
        elif kind == burst.SAVED:
            self.saved = str(event["file"]), str(event["text"])
            self._losses.saved(self.saved[1])
        elif kind == burst.AT and self.open and event["asked"] == self.asked:
            self._at[pod] = int(event["commits"])
        elif kind == burst.LEFT:
            crew.left.add(pod)
        elif kind == burst.DONE:
            crew.done.add(pod)
        elif kind == burst.THROUGH:
            crew.through.add(pod)
        elif kind == burst.FAILED:
            crew.failed.setdefault(pod, event)
        elif kind == burst.GONE:
            crew.gone[pod] = str(event["text"])

    # what is to be done

    def decide(self, view: View, at: float) -> Event | Ending | None:
        """The next step; to be applied and asked for again until there is none. ``at``: seconds on one clock."""
        if self._ended:
            return Ending(burst.ERROR, self._ended)
        crew = self.now
        if crew is None:
            return self._begin(view, at)
        through = crew.left | crew.done
        lost = {pod: crew.gone.get(pod) or view.lost.get(pod, "") for pod in crew.pods if pod not in through}
        lost = {pod: why for pod, why in lost.items() if why}
        if lost and not crew.failed and not self.can_go_on:
            why = next(iter(lost.values()))
            return Ending(burst.ERROR, why) if self._lasts("lost", at, LAST_WORDS) else None
        if lost and self.can_go_on:
            return self._loss(next(iter(lost.values())))
        if crew.failed:
            missed = self.can_go_on and all(follows(event) for event in crew.failed.values())
            return self._failure(crew) if self._lasts("failed", at, PEER_SECONDS if missed else LAST_WORDS) else None
        if crew.done.issuperset(crew.pods):
            return Ending(burst.OK, "")
        if through.issuperset(crew.pods):
            return self._go(view) or _do("end", number=crew.number, lost=False)
        if self.open:
            return self._answer(crew, at)
        return self._size(crew, view, at) if self.until is None and not crew.done | crew.through else None

    def whence(self) -> str:
        """Where workers go on, for people."""
        return f"from its last save ({self.saved[1] or 'before any loop'})" if self.saved else "from the beginning"

    # inside

    def _begin(self, view: View, at: float) -> Event | None:
        """Nobody works: as soon as there are enough pods, they do."""
        if self.next is not None:
            return self._go(view, ready=False) or _do("drop")
        target = sorted(view.usable)[: view.wanted]
        if len(target) < view.least or (not self._groups and view.coming and not self._lasts("settle", at, SETTLE)):
            return None
        return self._group(target)

    def _go(self, view: View, ready: bool = True) -> Event | None:
        """The next ones begin, if they are all there."""
        crew = self.next
        if crew is None or not view.usable.issuperset(crew.pods) or crew.gone or (ready and not crew.ready.issuperset(crew.pods)):
            return None
        return _do("go", number=crew.number, state=self.saved[0] if self.saved else None)

    def _group(self, pods: list[int]) -> Event:
        return _do("group", number=self._groups + 1, pods=pods)

    def _loss(self, why: str) -> Event | Ending:
        if ended := self._losses.too_many():
            return Ending(burst.ERROR, f"{ended} {why}")
        assert self.now is not None
        return _do("end", number=self.now.number, lost=True, why=why)

    def _failure(self, crew: Crew) -> Ending:
        """The failure that came first is the cause, but for those that only miss somebody."""
        failed = sorted(crew.failed.values(), key=lambda event: (follows(event), float(event.get("at") or 0)))[0]
        return Ending(burst.ERROR, f"Rank {failed.get('rank')} failed: {failed.get('name')}", failed)

    def _answer(self, crew: Crew, at: float) -> Event | None:
        if self._at.keys() >= set(crew.pods):
            return _do("answer", asked=self.asked, until=max(self._at.values()))
        late = bool(self._at) and self._lasts("question", at, PATIENCE)
        if late or crew.done or crew.through:  # one is through with its cell, or comes to no commit
            self._since.pop("question", None)
            self._since["stay"] = at
            return _do("answer", asked=self.asked, until=None)
        return None

    def _size(self, crew: Crew, view: View, at: float) -> Event | None:
        """Are others wanted, and how far is the way there?"""
        if self.next is not None:
            if self._go(view, ready=False) is None or not self._fits(self.next, view):
                return _do("drop")
            if not self.next.ready.issuperset(self.next.pods):
                return None
            if not self.commits:  # it may begin anew
                return self._go(view)
            return self._ask(at)
        target = self._target(crew, view)
        if not self.can_go_on or set(target) == set(crew.pods):
            self._since.pop("settle", None)
            return None
        if len(target) < view.least:  # those that are told to end leave all the same: nothing is lost then
            return self._ask(at) if self.commits and self.leaving & set(crew.pods) else None
        grows = set(target) > set(crew.pods)
        if grows and view.coming and not self._lasts("settle", at, SETTLE):
            return None
        return self._group(target)

    def _ask(self, at: float) -> Event | None:
        if at - self._since.get("stay", at - AGAIN) < AGAIN:
            return None
        return _do("ask", asked=self.asked + 1)

    def _fits(self, crew: Crew, view: View) -> bool:
        """They are still as many as are wanted, or that will do until they have begun."""
        return len(crew.pods) <= view.wanted

    def _target(self, crew: Crew, view: View) -> list[int]:
        """Those that are there stay before others come."""
        stay = [pod for pod in crew.pods if pod in view.usable]
        return [*stay, *sorted(view.usable - set(stay))][: view.wanted]

    def _lasts(self, what: str, at: float, seconds: float) -> bool:
        return at - self._since.setdefault(what, at) >= seconds

    def orders(self, pod: int) -> dict[str, Any]:
        """What a pod is told: its groups as they should be, until it is told otherwise. ``free``: none of them needs it.
        ``soon``: more is about to be told."""
        crews = [crew for crew in (self.now, self.next) if crew is not None and pod in crew.pods]
        groups = []
        for crew in crews:
            order: dict[str, Any] = {"number": crew.number, "rank": crew.pods.index(pod), "pods": crew.pods}
            if crew.begun:
                order["go"] = {"state": crew.state}
                order["asked"], order["open"], order["until"] = self.asked, self.open, self.until
            groups.append(order)
        return {"groups": groups, "free": not crews, "leaving": pod in self.leaving, "soon": self.turning}


def _do(what: str, **fields: Any) -> Event:
    return {"t": COURSE, "do": what, **fields}
