"""One set of workers: its processes and ranks, from their start to the end of the last.

A burst has one of them, or one after the other when its size changes. It must never leave a process behind, nor decide what becomes of
the burst.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

from ...protocol import burst
from ...protocol.burst import Plan, Process, Size
from .. import leftovers
from ..child import Child, last_words, started
from ..headroom import killed_for_memory, limit
from .journal import Journal
from .leaving import Answer, Leaving
from .meeting import Meeting, Rank

# After how many seconds an end takes which signal to whom: ranks clean up first, what holds them together goes after.
STEPS = ((0.0, signal.SIGINT), (0.7, signal.SIGTERM), (1.3, signal.SIGKILL))
AT_ONCE = ((0.0, signal.SIGKILL),)
LAST_WORD = 0.3  # seconds for what a process said before it ended to arrive
BESIDE = 1.0  # seconds for those that lead to be through, where one that follows has failed
LINGER = 5.0  # seconds for processes to end by themselves after their cells have
OURS = frozenset({burst.SHOW, burst.NOTE, burst.STEP, burst.SAVED, burst.COMMITS})  # words for whoever has started the group


class Group:
    """``number`` tells it from others of its burst. ``heard(group, rank, event)`` is called for the words of its ranks that are news."""

    def __init__(
        self, folder: Path, number: int, size: Size, plan: Plan, selector: selectors.BaseSelector, journal: Journal,
        heard: Callable[[Group, Rank, dict[str, Any]], None], umask: int, elsewhere: bool = False,
    ) -> None:  # fmt: skip
        """``elsewhere``: when its ranks leave is decided with those of other pods; ``heard`` gets what they answer."""
        self.size = size
        self.failed: Optional[tuple[Rank, dict[str, Any]]] = None  # and words of the first whose cell has failed
        self._folder, self._number, self._plan, self._journal, self._heard = folder, number, plan, journal, heard
        self._umask = umask
        self._due = [Process.from_json(raw) for raw in size.processes]
        self.world = sum(process.ranks for process in self._due)
        self._beside: Optional[tuple[float, tuple[Rank, dict[str, Any]]]] = None  # since when one that follows has failed
        self._followers = {each.number + n for each in self._due if each.follows for n in range(each.ranks)}
        self._socket = folder / burst.socket_name(number)
        self.meeting = Meeting(self._socket, selector, journal, self._word)
        self._leaving = Leaving(self.world)
        self._elsewhere = elsewhere
        self._killed = killed_for_memory()
        self._asked, self._at = 0, dict[int, int]()  # the newest question of elsewhere, and commits of those that wait for its answer
        self._children: list[tuple[Process, Path, Child]] = []
        self._go: Optional[dict[str, Any]] = None
        self._unstartable = ""  # why one of its processes could not even be started
        self._through_at: Optional[float] = None  # when the last rank was through with the cell
        self._suspect_at: Optional[float] = None  # since when something has ended that should not have
        self._steps: list[tuple[float, signal.Signals]] = []  # of an end, those that are to come
        self._ended_at: Optional[float] = None  # when the end began

    # how far it is

    @property
    def ready(self) -> bool:
        """Every rank has come."""
        return len(self.meeting.ranks) >= self.world

    @property
    def partly_through(self) -> bool:
        """A rank has come to the end of its cell, and another hasn't yet."""
        return not self._all_through and any(rank.through and not rank.left for rank in self.meeting.ranks.values())

    @property
    def prepared(self) -> bool:
        """Every rank can begin at once."""
        return self.ready and all(rank.prepared for rank in self.meeting.ranks.values())

    @property
    def left(self) -> bool:
        """Its ranks have left their cell to another group."""
        return self._all_through and any(rank.left for rank in self.meeting.ranks.values())

    @property
    def processes(self) -> list[int]:
        """The ids of those that it has started itself."""
        return [child.pid for _, _, child in self._children]

    @property
    def over(self) -> bool:
        """None of its processes runs."""
        return all(child.poll() is not None for _, _, child in self._children)

    def through(self, now: float) -> bool:
        """Its cells are, and what they have to give is here: their processes have ended too, however, or had the time to. Whatever has
        launched them is not waited for: torchrun takes seconds to end, and has nothing more to do."""
        if self._through_at is not None and now - self._through_at > LINGER:
            return True
        for _, _, child in self._children:
            child.poll()  # one that has ended is there until it is reaped
        return self._all_through and not any(
            started(rank.pid) for number, rank in self.meeting.ranks.items() if number not in self._followers
        )

    def trouble(self, now: float) -> str:
        """What has ended before its time, once there was time for last words; "" where nothing has."""
        why = self._why()
        if not why:
            self._suspect_at = None
            return ""
        if self._suspect_at is None:
            self._suspect_at = now
        return why if now - self._suspect_at > LAST_WORD else ""

    def missing(self) -> bool:
        """One of its ranks is gone without a word."""
        return any(rank.gone and not rank.through for rank in self.meeting.ranks.values()) or not self.ready

    # what it is told

    def start(self, state: Optional[str]) -> None:
        """Its cells begin, those of ranks that are still to come too. ``state``: the file that they go on from."""
        self._go = {"state": state}
        for rank in self.meeting.ranks.values():
            self.meeting.say(rank, burst.GO, **self._go)
        self._state_of_things()

    def leave(self, now: float) -> None:
        """At the next commit that is the same for all, if there is one. To be called again and again."""
        asked = self._leaving.ask(now) if not any(rank.through for rank in self.meeting.ranks.values()) else None
        if asked is not None:
            self._tell(burst.LEAVE, asked=asked)

    def stay(self, now: float) -> None:
        self._answer(self._leaving.stay(now))

    def ask(self, asked: int) -> None:
        """How far its ranks are: told once all have answered, as the furthest of them. They wait for ``answer``."""
        self._asked, self._at = asked, {}
        self._tell(burst.LEAVE, asked=asked)

    def answer(self, asked: int, until: Optional[int]) -> None:
        self._answer(Answer(asked, until))

    def end(self, at_once: bool = False) -> None:
        if self._ended_at is None or at_once:
            self._ended_at, self._steps = time.monotonic(), list(AT_ONCE if at_once else STEPS)
            self.turn(self._ended_at)

    def turn(self, now: float) -> None:
        """What is due."""
        if self._ended_at is None:
            self._start_those_due()
            self._judge_beside(now)
            self._answer(self._leaving.late(now))
        while self._ended_at is not None and self._steps and now - self._ended_at >= self._steps[0][0]:
            _, signum = self._steps.pop(0)
            self.meeting.signal(signum)
            if signum != signal.SIGINT:  # whatever holds the ranks together would end them harder than we do
                for _, _, child in self._children:
                    child.signal(signum)

    def clear(self) -> None:
        """Once it is over: whatever its processes have left running ends, too."""
        for _, _, child in self._children:
            child.sweep()
        self.meeting.kill_all()
        for _, _, child in self._children[:1]:  # the mark is on all that any of them has started
            leftovers.end(child.pid, f"{burst.SOCKET_VARIABLE}={self._socket}")

    def close(self) -> None:
        """Nothing that it says is heard any more."""
        self.meeting.close()
        for _, _, child in self._children:
            child.close()

    # inside

    @property
    def _all_through(self) -> bool:
        return self.ready and self.meeting.all_done(but=self._followers)

    def _judge_beside(self, now: float) -> None:
        """What one that follows has failed of counts, unless it is that those that lead are through, and gone."""
        if self._beside is not None and self.failed is None and not self._all_through and now - self._beside[0] > BESIDE:
            self.failed = self._beside[1]

    def _start_those_due(self) -> None:
        """In their order, each once what it needs is there."""
        while self._due and (not self._due[0].after or (self._folder / self._due[0].after).exists()):
            process = self._due.pop(0)
            gpus = self.size.gpus if process.gpus is None else process.gpus
            seen = {} if self._plan.sees_all else {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
            env = {**self._plan.env, **process.env, **seen, burst.SOCKET_VARIABLE: str(self._socket)}
            log = self._folder / f"process.{self._number}.{len(self._children)}.log"
            try:
                child = Child(process.argv, env, self._plan.cwd, log, self._umask)
            except OSError as exc:
                self._due, self._unstartable = [], f"{process.argv[0]} can't be started: {exc.strerror or exc}."
                return
            self._children.append((process, log, child))

    def _why(self) -> str:
        if self._unstartable:
            return self._unstartable
        for process, log, child in self._children:
            code = child.poll()
            if code is not None and not (process.ranks and self._is_through(process, child)):
                return _obituary(process, log, code, self._killed)
        silent = next((rank for rank in self.meeting.ranks.values() if rank.gone and not rank.through), None)
        if silent is not None:
            return f"{silent.named} (process {silent.pid}) ended before its cell was through: it was killed, or the cell has exited."
        if self.over and not self._due and not self._all_through:
            return f"Only {len(self.meeting.ranks)} of {self.world} ranks ran their cell to its end."
        return ""

    def _is_through(self, process: Process, child: Child) -> bool:
        """It is a rank that is through with its cell, or what all of its ranks are below is no longer needed."""
        numbers = range(process.number, process.number + process.ranks)
        return self._all_through or self.meeting.is_through(child.pid) or self.meeting.are_through(numbers)

    def _word(self, rank: Rank, event: dict[str, Any]) -> None:
        kind, now = event["t"], time.monotonic()
        if kind == burst.HELLO:
            if self._go is not None:
                self.meeting.say(rank, burst.GO, **self._go)
                self._state_of_things()
        elif kind == burst.AT and self._elsewhere:
            if int(event["asked"]) == self._asked:
                self._at[rank.number] = int(event["commits"])
                if len(self._at) == self.world:
                    self._heard(self, rank, {**event, "commits": max(self._at.values())})
        elif kind == burst.AT:
            self._answer(self._leaving.heard(rank.number, int(event["asked"]), int(event["commits"]), now))
        elif kind in (burst.DONE, burst.LEFT, burst.FAILED):
            if kind == burst.FAILED:
                self._note_failure(rank, event, now)
            elif kind == burst.DONE:
                self._answer(self._leaving.stay(now))
            if self._all_through:
                self._through_at = now
        elif kind in OURS:
            self._heard(self, rank, event)

    def _note_failure(self, rank: Rank, event: dict[str, Any], now: float) -> None:
        """The one that came first is the cause of others, whoever of them is heard first: an agent may be late."""
        failed = rank, {**{name: value for name, value in event.items() if name != "t"}, **rank.fields}
        if self.failed is not None:
            if rank.number not in self._followers and failed[1]["at"] < self.failed[1]["at"]:
                self.failed = failed
        elif self._beside is not None:
            self.failed = self._beside[1]  # it came first
        elif rank.number in self._followers:
            self._beside = now, failed
        else:
            self.failed = failed

    def _state_of_things(self) -> None:
        if self.meeting.ranks:
            self._journal.add(burst.STATE, running=len(self.meeting.ranks), of=self.world)

    def _answer(self, answer: Optional[Answer]) -> None:
        if answer is None:
            return
        if answer.until is None:
            self._tell(burst.STAY, asked=answer.asked)
        else:
            self._tell(burst.UNTIL, asked=answer.asked, commits=answer.until)

    def _tell(self, kind: str, **fields: Any) -> None:
        for rank in self.meeting.ranks.values():
            self.meeting.say(rank, kind, **fields)


def _obituary(process: Process, log: Path, code: int, killed: Mapping[Path, int]) -> str:
    """``killed``: what memory limits had killed before."""
    if code < 0:
        hint = _killer(killed) if code == -signal.SIGKILL else ""
        said = f"The process of {process.name} was killed by {signal.Signals(-code).name}{hint}"
    else:
        said = f"The process of {process.name} ended with exit code {code} before its cell was through"
    words = last_words(log)
    said += "" if said.endswith("?") else "."
    return f"{said} Its last words:\n{words}" if words else said


def _killer(before: Mapping[Path, int]) -> str:
    for group, count in killed_for_memory().items():
        most = limit(group)
        if count > before.get(group, 0) and most is not None:
            return (
                f": with all beside it, it needed more memory than there may be here ({most / (1 << 30):.2g} GiB). Use less, or have"
                " more for each worker, in a pod by a profile with more memory"
            )
    return " (is the machine out of memory?)"
