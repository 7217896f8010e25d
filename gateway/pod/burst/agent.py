"""The agent of one burst on one machine: ``python -m gateway.pod.burst.agent FOLDER`` starts its workers, and ends them all.

It outlives the gateway and writes everything into the burst's folder. SIGINT or SIGTERM cancel the burst. When its size changes, other
workers are made ready beside those that run, and go on from their last commit. It must never leave a process of the burst behind, and never
end without saying in the journal why.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any, Optional

from ...protocol import burst
from ...protocol.burst import Plan, Size
from ...protocol.losses import Losses
from ...protocol.peers import why_gone
from ..child import started
from ..possession import Possession
from . import orphans, packages
from .ending import told_to_end
from .group import LAST_WORD, Group
from .journal import Journal
from .meeting import Rank

LOOK = 0.1  # seconds between two looks at clocks, exit codes and the size that is wanted
STEP_SECONDS = 5.0  # between two words in the journal on how far the loops are


class Agent:
    def __init__(self, folder: Path, plan: Plan, umask: int) -> None:
        """``umask``: of its ranks, for the files that their user makes."""
        self._folder, self._plan, self._umask = folder, plan, umask
        self._journal = Journal(folder / burst.JOURNAL, plan.journal_bytes)
        self._selector = selectors.DefaultSelector()
        self._possession = Possession(plan.lock_dir, plan.who)
        self._began = time.monotonic()
        self._groups = 0  # how many there have been
        self._now: Group
        self._next: Optional[Group] = None  # made ready to go on
        self._outcome: Optional[tuple[str, str]] = None
        self._cancelled = ""
        self._commits = False  # workers can leave, and others go on
        self._restarts = False  # what is left of the group ends, and another goes on
        self._saved: Optional[str] = None  # the file to go on from
        self._saved_where = ""
        self._began_from: Optional[str] = None  # the one that the group has gone on from
        self._losses = Losses()
        self._failed_at: Optional[float] = None
        self._refused = 0
        self._step_at = float("-inf")

    def cancel(self, message: str) -> None:
        """End all, soon; what ranks say after it is no news. May be called in the middle of anything."""
        self._cancelled = message

    def run(self) -> None:
        """Until every process is gone."""
        first: Size = Size.from_json(self._plan.size)
        taken = self._possession.take(first.gpus)
        if taken:
            self._journal.end(burst.ERROR, f"{taken}. Run the cell again.")
            return
        outcome = packages.install(self._folder, self._plan, self._umask, self._journal, self._told_to_end)
        if outcome is not None:
            self._possession.leave()
            self._journal.end(*outcome)
            return
        self._now = self._group(first)
        self._now.start(None)
        self._write_group()
        while self._outcome is None or not all(group.over for group in self._both):
            self._turn()
        for group in self._both:
            group.clear()
        orphans.end(())
        self._hear_out()  # what they have said last
        for group in self._both:
            group.close()
        self._possession.leave()
        outcome, message = self._outcome
        self._journal.end(outcome, message)

    # inside

    @property
    def _both(self) -> list[Group]:
        return [self._now] if self._next is None else [self._now, self._next]

    def _group(self, size: Size) -> Group:
        self._groups += 1
        group = Group(self._folder, self._groups, size, self._plan, self._selector, self._journal, self._heard, self._umask)
        group.turn(time.monotonic())
        return group

    def _hear_out(self) -> None:
        """All that has been said until now."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                key.data()

    def _turn(self) -> None:
        for key, _ in self._selector.select(LOOK):
            key.data()
        now = time.monotonic()
        for group in self._both:
            group.turn(now)
        orphans.reap([pid for group in self._both for pid in group.processes])
        if self._outcome is not None:
            return
        if told := self._told_to_end(now):
            self._end(*told)
        elif self._restarts:
            self._take_over()
        elif self._now.failed is not None:
            self._judge(now)
        elif self._now.left:
            if self._now.through(now):
                self._now.end(at_once=True)
                self._restarts = True
        elif self._now.through(now):
            self._end(burst.OK, "")
        elif trouble := self._now.trouble(now):
            self._lost(trouble)
        else:
            self._look_at_size(now)

    def _told_to_end(self, now: float) -> Optional[tuple[str, str]]:
        """Outcome and message, where somebody or a clock wants its end."""
        if told := told_to_end(self._cancelled, self._plan.timeout, now - self._began):
            return told
        if self._plan.owner_pid is not None and started(self._plan.owner_pid) != self._plan.owner_started:
            return burst.CANCELLED, "The kernel that asked for it has ended or was restarted."
        return None

    # a group is through, or has failed

    def _judge(self, now: float) -> None:
        """A cell has failed: by itself, or because another rank is gone?"""
        assert self._now.failed is not None
        self._failed_at = self._failed_at or now
        if self._can_go_on and now - self._failed_at < LAST_WORD and not self._now.missing():
            return
        if self._can_go_on and self._now.missing():
            self._lost(self._now.trouble(now) or "A rank has ended before its cell was through.")
            return
        rank, event = self._now.failed
        if why := why_gone(event, [each.named for _, each in sorted(self._now.meeting.ranks.items()) if each.done]):
            self._note(why)
        self._journal.add(burst.FAILED, rank=rank.number, **event)
        self._end(burst.ERROR, f"{rank.named} failed: {event.get('name')}")

    @property
    def _can_go_on(self) -> bool:
        return self._commits or self._plan.restartable

    def _lost(self, why: str) -> None:
        if not self._can_go_on:
            self._end(burst.ERROR, why)
        elif ended := self._losses.too_many():
            self._end(burst.ERROR, f"{ended} {why}")
        else:
            self._losses.lost()
            whence = f"from its last save ({self._saved_where or 'before any loop'})" if self._saved else "from the beginning"
            self._note(f"{why.splitlines()[0]} Other workers go on {whence}.")
            self._now.end(at_once=True)
            self._restarts = True

    def _take_over(self) -> None:
        """The group has left, or is lost: once it is gone, its successor begins."""
        if not self._now.over:
            return
        size = self._now.size
        self._now.clear()
        orphans.end(self._next.processes if self._next else ())
        self._hear_out()
        self._now.close()
        self._now, self._next = self._next or self._group(size), None
        self._restarts, self._failed_at = False, None
        gpus = self._now.size.gpus
        self._possession.keep_only(gpus)
        taken = self._possession.take(gpus)
        if taken:
            self._end(burst.ERROR, f"{taken}. Run the cell again.")
            return
        self._began_from, before = self._saved, self._began_from
        self._forget(before)
        self._now.start(self._saved)
        self._write_group()

    # its size

    def _look_at_size(self, now: float) -> None:
        """Is another wanted, and how far is the way there?"""
        if self._next is None:
            wanted = self._wanted()
            if wanted is not None and self._can_go_on:
                self._note(f"{self._now.size.workers} → {wanted.workers} workers: {wanted.why}")
                self._next = self._group(wanted)
        elif trouble := self._next.trouble(now):
            self._give_up(f"The number of workers stays at {self._now.size.workers}. {trouble}", now)
        elif self._next.prepared:
            if self._commits:
                self._now.leave(now)
            else:  # it may begin anew
                self._now.end(at_once=True)
                self._restarts = True

    def _wanted(self) -> Optional[Size]:
        try:
            size: Size = Size.from_json(burst.read_json(self._folder / burst.SIZE))
        except (OSError, ValueError, TypeError):
            return None
        return size if size.number > max(self._now.size.number, self._refused) else None

    def _give_up(self, why: str, now: float) -> None:
        assert self._next is not None
        self._now.stay(now)
        self._refused = self._next.size.number
        self._note(why)
        self._next.end(at_once=True)
        self._next.clear()
        self._next.close()
        self._next = None
        self._write_group()

    def _write_group(self) -> None:
        size = self._now.size
        burst.write_json(
            self._folder / burst.GROUP, burst.Group(size.number, size.workers, size.gpus, self._can_go_on, self._refused).to_json()
        )

    # what ranks say

    def _heard(self, group: Group, rank: Rank, event: dict[str, Any]) -> None:
        if group is not self._now or self._restarts:
            return
        kind = event.pop("t")
        if kind == burst.COMMITS:
            if not self._commits:
                self._commits = True
                self._write_group()
        elif kind == burst.SAVED:
            self._losses.saved(str(event["text"]))
            before, self._saved, self._saved_where = self._saved, str(event["file"]), str(event["text"])
            self._step(self._saved_where, always=True)
            self._forget(before)
        elif kind == burst.STEP:
            self._step(str(event["text"]))
        else:
            self._journal.add(kind, rank=rank.number, **event, **rank.fields)

    def _forget(self, state: Optional[str]) -> None:
        """What nobody goes on from, nor still reads."""
        if state is not None and state not in (self._saved, self._began_from):
            (self._folder / state).unlink(missing_ok=True)

    def _step(self, text: str, always: bool = False) -> None:
        now = time.monotonic()
        if text and (always or now - self._step_at > STEP_SECONDS):
            self._step_at = now
            self._journal.add(burst.STEP, text=text)

    def _note(self, text: str) -> None:
        self._journal.add(burst.NOTE, text=text)

    def _end(self, outcome: str, message: str) -> None:
        if self._outcome is None:
            self._outcome = outcome, message
            for group in self._both:
                group.end(at_once=group is self._next)


def main(argv: list[str]) -> int:
    folder = Path(argv[1])
    umask = os.umask(0o077)
    plan: Plan = Plan.from_json(burst.read_json(folder / burst.PLAN))

    orphans.adopt()
    agent = Agent(folder, plan, umask)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: agent.cancel("It was cancelled."))
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
