"""One worker of an elastic burst in a pod of its own: runs its ranks in one group after the other, as the gateway has it.

What the gateway tells is how things should be, and may be told again; what its ranks say goes into the journal, with the number of their
group. It must never begin a group while a rank of the one before is left, nor decide by itself that a cell begins a second time.
"""

from __future__ import annotations

import selectors
import time
from pathlib import Path
from typing import Any, Optional

from ...protocol import burst
from ...protocol.burst import Plan, Process, Size
from . import packages
from .ending import told_to_end
from .group import Group
from .journal import Journal
from .meeting import Rank

KEPT = 2  # files of what was saved
LOOK = 0.1  # seconds between two looks at clocks, exit codes and orders


class _Part:
    """The ranks of this pod in one group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.begun = self.ready = self.partly_through = self.told = False  # told: how it has come to its end
        self.asked = self.answered = 0


class Follower:
    """An agent whose ranks change with the groups that they are in; see ``Agent``."""

    def __init__(self, folder: Path, plan: Plan, umask: int) -> None:
        self.orders: Optional[dict[str, Any]] = None  # the newest, from whoever hears the gateway
        self._folder, self._plan, self._umask = folder, plan, umask
        self._journal = Journal(folder / burst.JOURNAL, plan.journal_bytes)
        self._selector = selectors.DefaultSelector()
        self._parts: dict[int, _Part] = {}
        self._saved: list[str] = []
        self._cancelled = self._failed = ""
        self._leaving = self._told_leaving = False
        self._outcome: Optional[tuple[str, str]] = None
        self._began = time.monotonic()

    def cancel(self, message: str) -> None:
        """End all, soon. May be called in the middle of anything."""
        self._cancelled = self._cancelled or message

    def fail(self, message: str) -> None:
        """End the whole burst with an error. May be called in the middle of anything."""
        self._failed = self._failed or message

    def leave(self) -> None:
        """The cluster ends this pod: its rank is to leave at a commit, if there is time. May be called in the middle of anything."""
        self._leaving = True

    def run(self) -> None:
        """Until every process is gone, and nobody needs this pod any more."""
        self._outcome = packages.install(self._folder, self._plan, self._umask, self._journal, self._told_to_end)
        while self._outcome is None or self._parts:
            self._turn()
        outcome, message = self._outcome
        self._journal.end(outcome, message)

    # inside

    def _turn(self) -> None:
        for key, _ in self._selector.select(LOOK):
            key.data()
        now = time.monotonic()
        for number, part in list(self._parts.items()):
            part.group.turn(now)
            self._look_at(number, part, now)
        if self._leaving and not self._told_leaving:
            self._told_leaving = True
            self._journal.add(burst.LEAVING)
        if self._outcome is not None:
            return
        if told := self._told_to_end(now):
            self._end(*told)
        elif self.orders is not None:
            self._obey(self.orders)

    def _told_to_end(self, now: float) -> Optional[tuple[str, str]]:
        if self._failed:
            return burst.ERROR, self._failed
        return told_to_end(self._cancelled, self._plan.timeout, now - self._began)

    def _obey(self, orders: dict[str, Any]) -> None:
        wanted = {int(order["number"]): order for order in orders["groups"]}
        for number, part in self._parts.items():
            if number not in wanted:
                part.group.end(at_once=True)
        if orders["free"] and orders["leaving"] and not self._parts:
            self._end(burst.LOST, "The cluster has ended its pod.")
            return
        for number, order in wanted.items():
            if number not in self._parts and order.get("process"):
                self._parts[number] = self._part(number, order)
            if number in self._parts:
                self._follow(self._parts[number], order)

    def _part(self, number: int, order: dict[str, Any]) -> _Part:
        processes = [vars(Process.from_json(each)) for each in (order["process"], *order.get("beside", ()))]
        size = Size(number=number, workers=len(order["pods"]), processes=processes)
        group = Group(
            self._folder, number, size, self._plan, self._selector, self._journal, self._heard, self._umask, elsewhere=True
        )  # fmt: skip
        group.turn(time.monotonic())
        return _Part(group)

    def _follow(self, part: _Part, order: dict[str, Any]) -> None:
        go = order.get("go")
        if go is None:
            return
        if not part.begun:
            if any(other.begun for other in self._parts.values()):
                return  # it has to be gone first
            part.begun = True
            part.group.start(go["state"])
        asked = int(order["asked"])
        if asked > part.asked and order["open"]:
            part.asked = asked
            part.group.ask(asked)
        if asked == part.asked and asked > part.answered and not order["open"]:
            part.answered = asked
            part.group.answer(asked, order["until"])

    def _look_at(self, number: int, part: _Part, now: float) -> None:
        group = part.group
        if self._is_ended(number):
            if group.over:
                self._close(number, group)
            return
        if group.prepared and not part.ready:
            part.ready = True
            self._journal.add(burst.READY, group=number)
        if group.partly_through and not part.partly_through:
            part.partly_through = True
            self._journal.add(burst.THROUGH, group=number)
        if part.told:
            return
        if group.failed is not None:
            rank, event = group.failed
            self._say(part, burst.FAILED, group=number, rank=rank.number, **event)
        elif group.left:
            self._say(part, burst.LEFT, group=number)
        elif group.through(now):
            self._say(part, burst.DONE, group=number, ranks=sorted(group.meeting.ranks))
        elif trouble := group.trouble(now):
            self._say(part, burst.GONE, group=number, text=trouble)

    def _is_ended(self, number: int) -> bool:
        """Nobody wants that group any more."""
        if self._outcome is not None:
            return True
        return self.orders is not None and all(int(order["number"]) != number for order in self.orders["groups"])

    def _close(self, number: int, group: Group) -> None:
        group.clear()
        while ready := self._selector.select(0):  # what it has said last
            for key, _ in ready:
                key.data()
        group.close()
        del self._parts[number]

    def _say(self, part: _Part, kind: str, **fields: Any) -> None:
        part.told = True
        self._journal.add(kind, **fields)

    def _heard(self, group: Group, rank: Rank, event: dict[str, Any]) -> None:
        number, kind = group.size.number, event.pop("t")
        if kind == burst.SAVED:  # each group has names of its own, so that what comes late takes nobody's place
            name = f"state.{number}.{burst.state_number(event['file'])}"
            (self._folder / event["file"]).replace(self._folder / name)
            self._saved.append(name)
            if len(self._saved) > KEPT:  # not even on its way to the gateway any more, or of no use there
                (self._folder / self._saved.pop(0)).unlink(missing_ok=True)
            self._journal.add(kind, group=number, file=name, text=event["text"])
        elif kind in (burst.COMMITS, burst.AT):
            self._journal.add(kind, group=number, **event)
        else:
            self._journal.add(kind, rank=rank.number, **event)

    def _end(self, outcome: str, message: str) -> None:
        self._outcome = outcome, message
        for part in self._parts.values():
            part.group.end(at_once=not part.begun)
