"""A cluster whose pods are processes of this machine: what bursts in pods ask of the Kubernetes backend, as far as they need it.

Ranks, their agents and what they speak with the gateway are the real ones; who makes and ends pods is this. A pod of the base that is
lost is made again, as a Job's are; one beyond the least is not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.backends.kubernetes.jobs.jobs import Pods
from gateway.backends.kubernetes.jobs.manifests import Wanted
from gateway.backends.kubernetes.jobs.workers import Member
from gateway.backends.kubernetes.profiles import Profile
from gateway.backends.kubernetes.reasons import Trouble
from gateway.protocol import burst
from tests.integration.machine import REPOSITORY


@dataclass
class Pod:
    name: str
    flex: int
    index: int
    process: subprocess.Popen[bytes]
    told: bool = False

    @property
    def runs(self) -> bool:
        return self.process.poll() is None


@dataclass
class PodProcesses:
    """Stands for ``Jobs`` and its ``workers``. ``idle``: GPUs that nobody has."""

    folder: Path
    idle: int = 0
    pods_: dict[str, Pod] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)
    deleted: str = ""  # why no pod of the base is made any more
    asked: int = 0  # how often for room
    full: bool = False  # the queue has no place for workers more
    held: set[int] = field(default_factory=set)  # Jobs that wait in the queue: numbers of workers more, 0: the base
    taken_: set[int] = field(default_factory=set)  # those among them whose pods it has taken back
    sees_all: bool = True
    _base: int = 0
    _made: int = 0
    _kept: dict[str, str] = field(default_factory=dict)
    _spec: Path = Path()

    @property
    def workers(self) -> PodProcesses:
        return self

    # the test's hands

    def pod(self, name: str) -> Pod:
        return self.pods_[name]

    def kill(self, name: str) -> None:
        """With all that it runs: nobody can say a word."""
        pod = self.pods_[name]
        for child in self._children(pod.process.pid):
            os.kill(child, signal.SIGKILL)
        pod.process.kill()
        pod.process.wait()

    def delete(self, name: str) -> None:
        self.pods_[name].told = True
        self.pods_[name].process.terminate()

    def take(self, number: int) -> None:
        """As a queue does for whoever comes first: pods of that Job are told to end, and it waits again."""
        self.held.add(number)
        self.taken_.add(number)
        for pod in self.pods_.values():
            if pod.runs and pod.flex == number:
                self.delete(pod.name)

    def let(self, number: int) -> None:
        """Out of the queue; the pods of a base come by themselves."""
        self.held.discard(number)
        self.taken_.discard(number)
        if number:
            self._start(flex=number, index=0)

    def close(self) -> None:
        for name, pod in self.pods_.items():
            if pod.runs:
                self.kill(name)

    # of the base

    async def kept(self, what: str, make: Any) -> dict[str, str]:
        self._kept = self._kept or make()
        return self._kept

    def address(self) -> str:
        return "127.0.0.1"

    async def ids(self) -> set[str]:
        return set()

    def profile(self, supervisor: Any, image: str = "") -> Profile:
        return Profile(image="i", gpu_resource="example.com/gpu")

    def wanted(self, supervisor: Any, burst_id: str, workers: int, gpus: int, *more: Any) -> Wanted:
        return Wanted(burst_id, supervisor.kernel_id, supervisor.user, workers, gpus)

    def again(self, kept: Any) -> Wanted:
        return Wanted(**kept)

    def job(self, profile: Profile, wanted: Wanted) -> dict[str, Any]:
        return {"completions": wanted.workers}

    def roles(self, profile: Profile, wanted: Wanted, others: Any) -> dict[str, Any]:
        return {role.name: {"completions": role.count, "first": first} for role, first in others}

    def base(self, job: Any, profile: Profile, on_demand: bool) -> Any:
        return job

    def flex(self, job: Any, profile: Profile, on_demand: bool) -> Any:
        return {"flex": True}

    def checked_shape(self, shape: str, to_run: bool) -> str:
        return shape

    async def make(self, job: Any, wanted: Wanted, access: Any, roles: Any) -> str:
        self._spec, self._base = self.folder / "spec.json", job["completions"]
        burst.write_json(self._spec, access)
        self._tend()
        for each in roles.values():
            for index in range(each["completions"]):
                self._start(flex=0, index=index, first=each["first"])
        return "uid"

    async def end(self, burst_id: str, which: int | str = "") -> None:
        number = which if isinstance(which, int) else None
        if number is None:
            self._base = 0
        for pod in self.pods_.values():
            if pod.runs and not pod.told and number in (None, pod.flex):
                pod.told = True
                pod.process.terminate()

    def pods(self, burst_id: str, called: Any = None) -> Pods:
        running = [pod for pod in self.pods_.values() if pod.runs]
        return Pods({pod.index: "127.0.0.1" for pod in running}, {}, {}, len(running))

    def addresses(self, burst_id: str) -> dict[int, str]:
        return dict(self.pods(burst_id).addresses)

    # of workers more

    async def begin(self, flex: Any, number: int, uid: str) -> str:
        self.begun.append(number)
        if self.full:
            self.held.add(number)
        else:
            self._start(flex=number, index=0)
        return f"uid-{number}"

    def resource(self, flex: Any) -> str:
        return "example.com/gpu"

    async def room(self, flex: Any, everywhere: bool) -> int:
        self.asked += 1
        return max(0, self.idle - sum(pod.runs for pod in self.pods_.values() if pod.flex))

    async def ended(self, burst_id: str) -> str:
        return self.deleted

    async def queued(self, uid: str) -> str:
        return await self.taken(uid) or ("insufficient unused quota" if self._number(uid) in self.held else "")

    async def taken(self, uid: str) -> str:
        return "Preempted to accommodate a workload" if self._number(uid) in self.taken_ else ""

    async def refusal(self, burst_id: str) -> str:
        return ""

    async def hindrance(self, burst_id: str) -> str:
        return ""

    async def rest(self) -> None:
        pass

    def gpus(self, burst_id: str) -> dict[str, int]:
        return {"node": sum(pod.runs for pod in self.pods_.values())}

    def members(self, burst_id: str) -> dict[str, Member]:
        self._tend()
        return {
            pod.name: Member(
                pod.name, pod.flex, "node", "127.0.0.1" if pod.runs else "", pod.told, not pod.runs,
                None if pod.runs else Trouble("The worker's pod was killed.", True, "exited"),
            )
            for pod in self.pods_.values()
        }  # fmt: skip

    # inside

    @staticmethod
    def _number(uid: str) -> int:
        return int(uid.partition("-")[2] or 0)

    def _tend(self) -> None:
        for index in range(self._base if not self.deleted and 0 not in self.held else 0):
            if not any(pod.runs for pod in self.pods_.values() if not pod.flex and pod.index == index):
                self._start(flex=0, index=index)

    def _start(self, flex: int, index: int, first: int = 0) -> None:
        self._made += 1
        name = f"pod-{self._made}"
        env = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "JOB_COMPLETION_INDEX": str(index), burst.POD_VARIABLE: name,
            burst.FIRST_VARIABLE: str(first),
        }  # fmt: skip
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gateway.pod.burst.in_pod", str(self._folder(name)), "--spec", str(self._spec)],
                env=env, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.pods_[name] = Pod(name, flex, first + index, process)

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    def _children(self, pid: int) -> list[int]:
        found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return found + [grandchild for child in found for grandchild in self._children(child)]
