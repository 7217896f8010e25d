"""A rank's pod: ``python -m gateway.pod.burst.in_pod FOLDER --spec FILE`` brings the burst's folder here and runs its agent in it.

The file says how the gateway's folder is reached; what the agent writes down is sent there while it is written, with what the rank gives
back before the words that tell of it. It must never leave before all of that has arrived, as long as the cluster lets it, nor run a cell
twice.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional

from ...protocol import burst
from ...protocol.burst import Plan
from ...protocol.errors import BadRequest, ElasticError
from ...protocol.far import FarFolder
from .agent import Agent
from .follower import Follower

LOOK = 0.05  # seconds between two looks at the agent's journal
BEAT = 1.0  # seconds between two words to the gateway while there is nothing to tell
SOON = 0.1  # the same, while it is about to say something
CHUNK = 1 << 20  # bytes of journal at once
PATIENCE = 3600.0  # seconds for a gateway that is away to come back
OVER = "The burst is over."
_WITH_FILES = tuple(f'{{"t":"{kind}"'.encode() for kind in (burst.FAILED, burst.END, burst.DONE, burst.SAVED))
FOLDER = "{folder}"  # in what an engine has said of its processes: the burst's folder here


class Herald(threading.Thread):
    """Sends the journal of ``agent`` to the gateway, and what lies in files before the word that tells of it. ``rank``: the pod's."""

    def __init__(self, far: FarFolder, folder: Path, rank: int, agent: Agent | Follower, most: int) -> None:
        super().__init__(name="herald", daemon=True)
        self.failed = False  # the cell has: what the user's code raised
        self._far, self._folder, self._rank, self._agent, self._most = far, folder, rank, agent, most
        self._sent: set[str] = set()
        self._ended = False  # nothing more is to be told
        self._at = 0  # how much of the journal has arrived

    def run(self) -> None:
        beat = 0.0
        try:
            while not self._ended:
                data = self._read(self._at)
                if not data and time.monotonic() < beat:
                    time.sleep(LOOK)
                    continue
                self._bring_files(data)
                answer = self._far.ask("POST", f"ranks/{self._rank}/words?since={self._at}", data)
                self._at, beat = int(answer["next"]), time.monotonic() + (SOON if answer.get("orders", {}).get("soon") else BEAT)
                if answer.get("over"):
                    self._ended = True
                    self._agent.cancel(OVER)
                elif answer.get("cancel"):
                    self._agent.cancel("It was cancelled.")
                elif isinstance(self._agent, Follower) and "orders" in answer:
                    self._fetch_states(answer["orders"])
                    self._agent.orders = answer["orders"]
        except ElasticError as exc:  # it is not there any more, or not the one that we know
            print(f"The gateway doesn't hear this rank: {exc}", file=sys.stderr, flush=True)
            self._agent.cancel(f"The gateway doesn't know of it any more: {exc}")

    @property
    def all_told(self) -> bool:
        return not self._read(self._at)

    def _read(self, at: int) -> bytes:
        try:
            with open(self._folder / burst.JOURNAL, "rb") as file:
                file.seek(at)
                data = file.read(CHUNK)
                if b"\n" not in data:
                    data += file.readline()  # what is displayed may be long
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _bring_files(self, data: bytes) -> None:
        for line in data.splitlines():
            if line.startswith(_WITH_FILES):
                event = json.loads(line)
                kind = event["t"]
                self.failed = self.failed or kind == burst.FAILED
                if kind == burst.SAVED:
                    self._bring_state(str(event["file"]))
                elif kind == burst.FAILED:
                    self._bring_of(burst.FAILURES, event.get("rank", self._rank))
                elif kind == burst.DONE:  # in a group before, ranks may have had other numbers, and given back something else
                    for rank in event["ranks"]:
                        self._bring_of(burst.RESULTS, rank, again=True)
                elif isinstance(self._agent, Agent):
                    for sizes in sorted((self._folder / burst.RESULTS).glob("*.sizes")):
                        self._bring_of(burst.RESULTS, sizes.stem)

    def _bring_state(self, name: str) -> None:
        """Workers that left for others would have to go on from an earlier one, without anybody knowing: that ends the burst."""
        try:
            self._bring(name)
        except ElasticError as exc:
            assert isinstance(self._agent, Follower)
            self._agent.fail(f"What was saved can't be kept at the gateway (at most Bursts.capsule_bytes): {exc}")

    def _fetch_states(self, orders: dict[str, Any]) -> None:
        """What its groups go on from, before they are told to."""
        for order in orders["groups"]:
            state = (order.get("go") or {}).get("state")
            if state and state not in self._sent and not (self._folder / state).exists():
                self._far.get(state, self._folder / f"{state}.new")
                (self._folder / f"{state}.new").replace(self._folder / state)

    def _bring_of(self, folder: str, rank: Any, again: bool = False) -> None:
        names = f"{folder}/{rank}.sizes", f"{folder}/{rank}"
        if again:
            self._sent.difference_update(names)
        self._bring(*names)

    def _bring(self, *names: str) -> None:
        for name in names:
            if name not in self._sent and (self._folder / name).is_file():
                if (self._folder / name).stat().st_size > self._most:  # which it would refuse in the middle: its words may be lost then
                    raise BadRequest(f"{name} has more than {self._most / 1e6:.0f} MB", reason="too_large")
                self._far.put_file(name, self._folder / name)
                self._sent.add(name)


def main(argv: list[str]) -> int:
    """0: the cell has run; ``burst.USER_ERROR``: it has failed; 1: something else has ended it."""
    parser = argparse.ArgumentParser("python -m gateway.pod.burst.in_pod")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--spec", type=Path, required=True)
    asked = parser.parse_args(argv[1:])
    umask = os.umask(0o077)
    rank = int(os.environ["JOB_COMPLETION_INDEX"]) + int(os.environ.pop(burst.FIRST_VARIABLE, 0))
    name = os.environ.get(burst.POD_VARIABLE, "")
    told: list[str] = []
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: _leave())
    folder = asked.folder / "burst"  # a container's first life; another one begins no cell anew
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        print("This container was started before: its cell isn't begun a second time.", file=sys.stderr)
        return 1
    far = FarFolder(burst.read_json(asked.spec), PATIENCE)
    try:
        plan, number = _plan(far, f"ranks/{rank}/plan", name)
        _bring_in(plan, folder)
        for name in (burst.REQUEST, f"{burst.CAPSULE}.sizes", burst.CAPSULE):
            far.get(name, folder / name)
    except (ElasticError, OSError) as exc:
        print(f"What this rank needs can't be had from the gateway: {exc}", file=sys.stderr)
        return 1
    agent: Agent | Follower = Agent(folder, plan, umask) if number is None else Follower(folder, plan, umask)

    def end(*_: Any) -> None:
        told.append("")
        agent.leave() if isinstance(agent, Follower) else agent.cancel("The cluster has ended its pod.")

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, end)
    herald = Herald(far, folder, rank if number is None else number, agent, int(plan.env[burst.LIMIT_VARIABLE]))
    herald.start()
    agent.run()
    while herald.is_alive() and not (told and herald.all_told):
        herald.join(LOOK)
    if told and number is not None:
        return 1  # another takes its place: what its cell failed of may be that others had left
    return burst.USER_ERROR if herald.failed else 1 if told else 0


def _bring_in(plan: Plan, folder: Path) -> None:
    """Files that it came with, and the place where it has come to."""
    for name, text in plan.files.items():
        place = folder / Path(name).name
        with open(place, "w", opener=burst.private) as file:
            file.write(text)
        if text.startswith("#!"):
            place.chmod(0o700)
    for process in plan.size["processes"]:
        process["argv"] = [word.replace(FOLDER, str(folder)) for word in process["argv"]]
        process["env"] = {name: value.replace(FOLDER, str(folder)) for name, value in process["env"].items()}


def _leave() -> None:
    os._exit(0)  # nothing has begun


def _plan(far: FarFolder, path: str, name: str) -> tuple[Plan, Optional[int]]:
    """What to run, once all ranks have a pod; or, of a burst whose pods come and go, as which of them. Raises ``ElasticError``."""
    path = f"{path}?address={far.own_address()}" + (f"&pod={name}" if name else "")
    while True:
        answer: dict[str, Any] = far.ask("GET", path)
        if answer.get("plan"):
            plan: Plan = Plan.from_json(answer["plan"])
            if not os.path.isdir(plan.cwd):
                plan.cwd = "/tmp"
            own = ("HOSTNAME", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")  # of a pod, not of the kernel's
            plan.env = {**{k: v for k, v in plan.env.items() if k not in own}, **{k: os.environ[k] for k in own if k in os.environ}}
            return plan, answer.get("number")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
