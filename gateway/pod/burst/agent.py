"""The agent of one burst on one machine: ``python -m gateway.pod.burst.agent FOLDER`` starts its processes, and ends them all.

It outlives the gateway and writes everything into the burst's folder. SIGINT or SIGTERM cancel the burst. It must never leave a
process of the burst behind, and never end without saying in the journal why.
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
from ...protocol.burst import Plan, Process
from .. import leftovers
from ..child import Child, last_words, started
from ..possession import Possession
from .journal import Journal
from .meeting import Meeting, Rank

LOOK = 0.1  # seconds between two looks at clocks and exit codes
# After how many seconds an end takes which signal to whom: ranks clean up first, what holds them together goes after.
STEPS = ((0.0, signal.SIGINT), (0.7, signal.SIGTERM), (1.3, signal.SIGKILL))
LAST_WORD = 0.3  # seconds for what a process said before it ended to arrive
LINGER = 5.0  # seconds for processes to end by themselves after their cells have


class Agent:
    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        self._journal = Journal(folder / burst.JOURNAL, plan.journal_bytes)
        self._selector = selectors.DefaultSelector()
        self._meeting = Meeting(folder / burst.SOCKET, self._selector, self._journal, self._heard)
        self._due: list[Process] = [Process.from_json(raw) for raw in plan.processes]
        self._world = sum(process.ranks for process in self._due)
        self._children: list[tuple[Process, Child]] = []
        self._began = time.monotonic()
        self._outcome: Optional[tuple[str, str]] = None
        self._ended_at = 0.0  # when the end began
        self._steps = list(STEPS)
        self._done_at: Optional[float] = None  # when the last rank was through with the cell
        self._possession = Possession(plan.lock_dir, plan.who)
        self._suspect_at: Optional[float] = None  # since when something has ended that should not have

    def cancel(self, message: str) -> None:
        """End all; what ranks say after it is no news."""
        self._end(burst.CANCELLED, message)

    def run(self) -> None:
        """Until every process is gone."""
        taken = self._possession.take(self._plan.gpus)
        if taken:
            self._journal.end(burst.ERROR, f"{taken}. Run the cell again.")
            return
        self._start_those_due()
        while any(child.poll() is None for _, child in self._children):
            self._turn()
        for _, child in self._children:
            child.sweep()
        self._meeting.kill_all()
        for _, child in self._children[:1]:  # the mark is on all that any of them has started
            leftovers.end(child.pid, f"{burst.SOCKET_VARIABLE}={self._folder / burst.SOCKET}")
        while ready := self._selector.select(0):  # what they have said last
            for key, _ in ready:
                key.data()
        self._meeting.close()
        self._possession.leave()
        outcome, message = self._outcome or self._judge()
        self._journal.end(outcome, message)

    # inside

    def _start_those_due(self) -> None:
        """In their order, each once what it needs is there."""
        while self._due and self._outcome is None and (not self._due[0].after or (self._folder / self._due[0].after).exists()):
            process = self._due.pop(0)
            env = {**self._plan.env, **process.env, burst.SOCKET_VARIABLE: str(self._folder / burst.SOCKET)}
            try:
                child = Child(process.argv, env, self._plan.cwd, self._folder / f"process.{len(self._children)}.log")
            except OSError as exc:
                self._end(burst.ERROR, f"{process.argv[0]} can't be started: {exc.strerror or exc}.")
                return
            self._children.append((process, child))

    @property
    def _all_through(self) -> bool:
        """Every rank has come and is through with its cell."""
        return self._meeting.all_done and len(self._meeting.ranks) >= self._world

    @property
    def _all_ran(self) -> bool:
        """And their processes have ended, however: what they have to give is here."""
        return self._all_through and not any(process.ranks and child.poll() is None for process, child in self._children)

    def _turn(self) -> None:
        for key, _ in self._selector.select(LOOK):
            key.data()
        now = time.monotonic()
        if self._outcome is not None:
            self._carry_on_ending(now)
            return
        self._start_those_due()
        if self._all_ran or (self._done_at is not None and now - self._done_at > LINGER):
            self._end(burst.OK, "")
        elif self._plan.timeout is not None and now - self._began > self._plan.timeout:
            self._end(burst.ERROR, f"It ran for {self._plan.timeout:g} seconds, as long as --timeout lets it.")
        elif self._plan.owner_pid is not None and started(self._plan.owner_pid) != self._plan.owner_started:
            self.cancel("The kernel that asked for it has ended or was restarted.")
        elif not self._why():
            self._suspect_at = None
        elif self._suspect_at is None:
            self._suspect_at = now
        elif now - self._suspect_at > LAST_WORD:
            self._end(burst.ERROR, self._why())

    def _why(self) -> str:
        """What has ended before its time, as far as it is known; "" where nothing has."""
        for at, (process, child) in enumerate(self._children):
            code = child.poll()
            through = process.ranks and (self._all_through or self._meeting.is_through(child.pid))
            if code is not None and not through:
                return self._obituary(process, self._folder / f"process.{at}.log", code)
        silent = next((rank for rank in self._meeting.ranks.values() if rank.gone and not rank.through), None)
        if silent is not None:
            return f"Rank {silent.number} (process {silent.pid}) ended before its cell was through: it was killed, or the cell has exited."
        return ""

    def _heard(self, rank: Rank, event: dict[str, Any]) -> None:
        kind = event.pop("t")
        if kind == "hello":
            self._journal.add(burst.STATE, running=len(self._meeting.ranks), of=self._world)
        elif kind == "done":
            if self._all_through:
                self._done_at = time.monotonic()
        elif kind == burst.FAILED and self._outcome is None:
            self._journal.add(burst.FAILED, rank=rank.number, **event)
            self._end(burst.ERROR, f"Rank {rank.number} failed: {event.get('name')}")
        elif kind in (burst.SHOW, burst.NOTE):
            self._journal.add(kind, rank=rank.number, **event)

    def _end(self, outcome: str, message: str) -> None:
        if self._outcome is None:
            self._outcome, self._ended_at = (outcome, message), time.monotonic()
            self._carry_on_ending(self._ended_at)

    def _carry_on_ending(self, now: float) -> None:
        while self._steps and now - self._ended_at >= self._steps[0][0]:
            _, signum = self._steps.pop(0)
            self._meeting.signal(signum)
            if signum != signal.SIGINT:  # whatever holds the ranks together would end them harder than we do
                for _, child in self._children:
                    child.signal(signum)

    def _judge(self) -> tuple[str, str]:
        """Every process has ended and nobody has said why."""
        if self._all_ran:
            return burst.OK, ""
        return burst.ERROR, self._why() or f"Only {len(self._meeting.ranks)} of {self._world} ranks ran their cell to its end."

    def _obituary(self, process: Process, log: Path, code: int) -> str:
        if code < 0:
            hint = ": is the machine out of memory?" if code == -signal.SIGKILL else ""
            said = f"The process of {process.name} was killed by {signal.Signals(-code).name}{hint}"
        else:
            said = f"The process of {process.name} ended with exit code {code} before its cell was through"
        words = last_words(log)
        return f"{said}. Its last words:\n{words}" if words else f"{said}."


def main(argv: list[str]) -> int:
    folder = Path(argv[1])
    os.umask(0o077)
    plan: Plan = Plan.from_json(burst.read_json(folder / burst.PLAN))

    agent = Agent(folder, plan)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: agent.cancel("It was cancelled."))
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
