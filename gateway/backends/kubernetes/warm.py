"""Warm kernels: started for nobody yet, so that a start claims one instead of waiting for a pod.

A claim is one write, to the kernel's Secret: whose it is stands there and nowhere else, and whatever follows can be done again by the
next gateway. This must never give one pod to two, nor keep one that is not what a start of today would make or that is in a kernel's way.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ElasticError
from ...protocol.model import IDENTITY, Spec
from ..base import Warm
from . import manifests, names, reasons
from .api import PODS, SECRETS
from .errors import ApiConflict, ApiMissing
from .news import Pods
from .profiles import Profile
from .room import makes_room, wants_room
from .starts import Starts, listens, parts
from .supervisor import PodSupervisor

if TYPE_CHECKING:
    from .cluster import KubernetesCluster

log = logging.getLogger(__name__)

LOOK, SOON = 60.0, 0.2  # seconds until the next look where nothing is told, and where a supervisor is coming up
FIRST, LONGEST = 5.0, 300.0  # seconds to wait after a warm kernel that did not come up, doubled each time
PERSONAL = ("KERNEL_", "JPY_")  # variables of a request that a kernel may learn after its start


class WarmKernels:
    """Of one gateway. ``start(spec, profile)`` makes the pod of a spec and returns its supervisor."""

    def __init__(self, cluster: KubernetesCluster, starts: Starts, pods: Pods, start: Callable[..., Any]) -> None:
        self._cluster, self._starts, self._pods, self._start = cluster, starts, pods, start
        self._wanted: dict[str, tuple[Spec, Profile]] = {}  # by key
        self._hits: Counter[str] = Counter()  # by profile
        self._misses: Counter[str] = Counter()
        self._taken: set[str] = set()  # uids of pods that are being claimed or ended
        self._up: set[str] = set()  # uids of pods whose supervisor listens
        self._making: dict[str, asyncio.Task[None]] = {}
        self._pause: dict[str, float] = {}
        self._served: set[str] = set()  # uids of kernels' pods for which warm ones have given way
        self._keeper: asyncio.Task[None] | None = None

    def keep(self, wanted: Iterable[tuple[Spec, Profile]]) -> None:
        """From now on so many of these are there as their profiles say, and no others. Called once."""
        for spec, profile in wanted:
            if spec.language == "python":
                self._wanted[key(self._cluster.code, spec, profile)] = spec, profile
            else:
                log.warning("kernels of %s are never warm: only a Python kernel can be told afterwards whose it is", spec.name)
        self._keeper = asyncio.create_task(self._keep(), name="warm kernels")

    async def stop(self) -> None:
        """They stay for the next gateway."""
        for task in (*self._making.values(), *([self._keeper] if self._keeper else [])):
            task.cancel()

    async def end(self) -> None:
        """No more of them."""
        self._wanted = {}
        for task in self._making.values():
            task.cancel()
        await self._end_unwanted()

    def state(self) -> dict[str, Warm]:
        """By profile."""
        found = {}
        for name in {profile.name for _, profile in self._wanted.values()}:
            ready = sum(len(self._ready(key)) for key, (_, profile) in self._wanted.items() if profile.name == name)
            found[name] = Warm(ready, self._hits[name], self._misses[name])
        return found

    async def claim(self, spec: Spec, profile: Profile) -> PodSupervisor | None:
        """A warm kernel that is this one from now on; None where there is none that would do."""
        if not profile.warm or self._keeper is None:
            return None
        for pod in self._ready(key(self._cluster.code, spec, profile)):
            self._taken.add(pod["metadata"]["uid"])  # for good: nobody may take it for one too many while the watch is a moment behind
            claimed = await self._claimed(pod, spec)
            if claimed is not None:
                self._hits[profile.name] += 1
                return claimed
        self._misses[profile.name] += 1
        return None

    async def finish(self, pod: reasons.Pod, spec: Spec) -> None:
        """What follows from a claim: its pod is shown as the kernel's. Again, where it has been done: nothing."""
        labels = {**names.labels(self._cluster.name, names.ROLE_KERNEL, spec.kernel_id, spec.user), names.WARM: None}
        change = {"metadata": {"uid": pod["metadata"]["uid"], "labels": labels}}
        await self._cluster.api.patch(PODS, self._cluster.namespace, pod["metadata"]["name"], change)

    # inside

    async def _claimed(self, pod: reasons.Pod, spec: Spec) -> PodSupervisor | None:
        """None where another gateway was quicker, or it has gone."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        secret = await self._starts.secret(name)
        if secret is None:
            return None
        born, owner = parts(secret)
        if not born.get("unclaimed"):
            return None
        whose = {**born, **{field: getattr(spec, field) for field in IDENTITY}, "unclaimed": False}
        change = {
            "metadata": {
                "resourceVersion": secret["metadata"]["resourceVersion"],
                "labels": names.labels(self._cluster.name, names.ROLE_KERNEL, spec.kernel_id, spec.user),
            },
            "data": {manifests.SPEC_KEY: b64encode(json.dumps(whose).encode()).decode()},
        }
        try:
            await self._cluster.api.patch(SECRETS, self._cluster.namespace, name, change)
        except (ApiConflict, ApiMissing):
            return None
        try:
            await self.finish(pod, spec)
        except BaseException:
            await asyncio.shield(self._starts.undo(name, uid))
            raise
        return PodSupervisor(self._cluster, pod, whose, owner)

    def _ready(self, key: str) -> list[reasons.Pod]:
        return [pod for pod in self._living(key) if pod["metadata"]["uid"] in self._up]

    def _living(self, key: str | None) -> list[reasons.Pod]:
        """Warm pods of one key, or of all."""
        return [
            pod
            for pod in self._pods.of(names.ROLE_KERNEL)
            if (found := pod["metadata"]["labels"].get(names.WARM)) is not None
            and (key is None or found == key)
            and not pod["metadata"].get("deletionTimestamp")
            and pod["metadata"]["uid"] not in self._taken
        ]

    async def _keep(self) -> None:
        while True:
            pause = LOOK
            try:
                there = {pod["metadata"]["uid"] for pod in self._pods.of(names.ROLE_KERNEL)}
                self._taken, self._up = self._taken & there, self._up & there
                await self._end_unwanted()
                await self._give_way()
                for pod in self._living(None):
                    if reasons.running(pod) and pod["metadata"]["uid"] not in self._up:
                        if await listens(pod):
                            self._up.add(pod["metadata"]["uid"])
                        else:
                            pause = SOON
                for key, (spec, profile) in self._wanted.items() if not self._served else ():
                    if key not in self._making and len(self._living(key)) < profile.warm:
                        self._making[key] = asyncio.create_task(self._make(key, spec, profile))
            except ElasticError as exc:
                log.warning("warm kernels can't be looked after now: %s", exc)
            await self._pods.changed(pause)

    async def _end_unwanted(self) -> None:
        """Those that have ended, that are on a drained node, that are too many, or that no start would make today."""
        for pod in self._living(None):
            wanted = self._wanted.get(pod["metadata"]["labels"][names.WARM])
            left_over = wanted is None or len(self._living(pod["metadata"]["labels"][names.WARM])) > wanted[1].warm
            if left_over or reasons.over(pod) or pod["spec"].get("nodeName") in self._cluster.drained:
                self._taken.add(pod["metadata"]["uid"])
                await self._cluster.delete_pod(pod["metadata"]["name"], pod["metadata"]["uid"], 1.0)

    async def _give_way(self) -> None:
        """A kernel that somebody waits for comes before those that nobody does. None is made anew before it has its node."""
        waiting = [pod for pod in self._pods.of(names.ROLE_KERNEL) if names.WARM not in pod["metadata"]["labels"] and wants_room(pod)]
        self._served &= {pod["metadata"]["uid"] for pod in waiting}
        for pod in waiting:
            uid = pod["metadata"]["uid"]
            ends = [] if uid in self._served else makes_room(pod, self._living(None))
            for each in ends:
                log.info("the warm kernel %s gives way to %s", each["metadata"]["name"], pod["metadata"]["name"])
                self._taken.add(each["metadata"]["uid"])
                self._served.add(uid)
                await self._cluster.delete_pod(each["metadata"]["name"], each["metadata"]["uid"], 1.0)

    async def _make(self, key: str, spec: Spec, profile: Profile) -> None:
        """One more; after a failure another is not made at once."""
        kernel_id = f"warm-{secrets.token_hex(8)}"
        nobodys = replace(spec, kernel_id=kernel_id, key=secrets.token_hex(32), user="", display="", unclaimed=True)
        try:
            await self._start(nobodys, profile, key)
            self._pause.pop(key, None)
        except ElasticError as exc:
            pause = self._pause[key] = min(2 * self._pause.get(key, FIRST / 2), LONGEST)
            log.warning("a warm kernel of the profile %s did not come up, the next try is in %g s: %s", profile.name, pause, exc)
            await asyncio.sleep(pause)
        finally:
            self._making.pop(key, None)
        self._pods.told()


def key(code: str, spec: Spec, profile: Profile) -> str:
    """The same for starts that differ in nothing but what a kernel may learn afterwards."""
    fields: Mapping[str, Any] = spec.to_json()
    alike = {name: fields[name] for name in ("argv", "name", "gpus", "interrupt_mode", "journal_bytes", "window_bytes", "session_seconds",
                                             "stall_seconds", "notice_after", "simulated")}  # fmt: skip
    env = {name: value for name, value in spec.env.items() if not name.startswith(PERSONAL)}
    text = json.dumps([code, alike, env, asdict(profile)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
