"""Slots against a scheduler of three lines: what is leased is requested, all or nothing, and what is left goes back."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.backends.base import GpusTaken
from gateway.backends.kubernetes import names
from gateway.backends.kubernetes.errors import ApiConflict
from gateway.backends.kubernetes.manifests import Site
from gateway.backends.kubernetes.news import Pods
from gateway.backends.kubernetes.profiles import profiles
from gateway.backends.kubernetes.slots import UNITS, Slots
from gateway.protocol.model import Rung

GPU = "example.com/gpu"
PROFILES = profiles({"gpu": {"image": "kernel", "gpu_resource": GPU, "gpus": 8}})
Pod = dict[str, Any]


class World:
    """One node with GPUs, some of which others have; its API server and its scheduler."""

    def __init__(self, gpus: int, foreign: int = 0) -> None:
        self.pods = Pods("kernels")
        self.gpus, self.foreign, self.freed = gpus, foreign, 0
        self.taken_back: list[tuple[str, ...]] = []
        self._numbers = itertools.count(1)
        self.slots = Slots(self, self.pods, Site("gw", "kernels", "code"), PROFILES, Rung.ANYWHERE, self._freed, self.taken_back.append)  # type: ignore[arg-type]
        node = {"metadata": {"name": "node"}, "status": {"allocatable": {GPU: str(gpus)}}, "spec": {}}
        self.slots._nodes = SimpleNamespace(cache={("", "node"): node})  # type: ignore[assignment]
        self.leases: dict[str, tuple[str, ...]] = {}
        self.waits: set[str] = set()  # kernels that do
        self.homes: dict[str, tuple[str, ...]] = {}

    # what a test says and asks

    def kernel(self, name: str) -> None:
        """Its pod is there."""
        labels = names.labels("gw", names.ROLE_KERNEL, name, "ada")
        self.pods.cache["kernels", f"pod-{name}"] = {
            "metadata": {"name": f"pod-{name}", "uid": f"uid-{name}", "labels": labels}, "spec": {"nodeName": "node"},
            "status": {"phase": "Running"},
        }  # fmt: skip

    async def grant(self, kernel: str, *numbers: int) -> list[str]:
        """As the broker does: the book has decided, what nobody has goes back, and the kernel's slot is asked for."""
        self.leases[kernel] = units(*numbers)
        self.waits.discard(kernel)
        self.settle()
        supervisor = SimpleNamespace(kernel_id=kernel, user="ada", made_from=None, node="node", place=f"pod-{kernel}", uid=f"uid-{kernel}")
        try:
            return await self.slots.acquire(supervisor, units(*numbers))  # type: ignore[arg-type]
        except GpusTaken:
            del self.leases[kernel]
            self.waits.add(kernel)
            self.settle()
            raise

    def release(self, *kernels: str) -> None:
        for kernel in kernels:
            del self.leases[kernel]
        self.settle()

    def settle(self) -> None:
        self.slots.settle(self.leases, {"a", "b", "c"}, {"node"} if self.waits else set(), self.homes)

    def others_have(self, count: int) -> None:
        self.foreign = count
        self._schedule()

    @property
    def taken(self) -> set[str]:
        """Of the units, those that can't be leased."""
        self.slots._taken.clear()  # as after a while
        return set(self.slots.claim({"a", "b", "c"}).foreign)

    @property
    def bound(self) -> list[list[str]]:
        return sorted(json.loads(pod["metadata"]["annotations"][UNITS]) for pod in self._all() if pod["spec"].get("nodeName"))

    @property
    def waiting(self) -> list[list[str]]:
        return sorted(json.loads(pod["metadata"]["annotations"][UNITS]) for pod in self._all() if not pod["spec"].get("nodeName"))

    def _freed(self) -> None:
        self.freed += 1

    # the API server

    async def create(self, kind: Any, namespace: str, body: Pod) -> Pod:
        key = namespace, body["metadata"]["name"]
        if key in self.pods.cache:
            raise ApiConflict("it is there", 409)
        pod = copy.deepcopy(body)
        pod["metadata"]["uid"] = f"uid-{next(self._numbers)}"
        pod["status"] = {"phase": "Pending"}
        self.pods.cache[key] = pod
        asyncio.get_running_loop().call_soon(self._schedule)
        return copy.deepcopy(pod)

    async def patch(self, kind: Any, namespace: str, name: str, change: Any) -> Pod:
        pod = self.pods.cache[namespace, name]
        labels = pod["metadata"]["labels"] | change["metadata"].get("labels", {})
        pod["metadata"] |= change["metadata"] | {"labels": labels}
        return copy.deepcopy(pod)

    async def delete(self, kind: Any, namespace: str, name: str, *, uid: str, grace: int) -> None:
        if self.pods.cache.get((namespace, name), {"metadata": {"uid": uid}})["metadata"]["uid"] == uid:
            self.pods.cache.pop((namespace, name), None)
            asyncio.get_running_loop().call_soon(self._schedule)

    # the scheduler

    def _schedule(self) -> None:
        for pod in self._all():
            if not pod["spec"].get("nodeName"):
                fits = self.foreign + sum(_size(each) for each in self._all() if each["spec"].get("nodeName")) + _size(pod) <= self.gpus
                if fits:
                    pod["spec"]["nodeName"] = "node"
                condition = {"type": "PodScheduled", "status": str(fits), "reason": "" if fits else "Unschedulable", "message": "no room"}
                pod["status"]["conditions"] = [condition]
        self.pods.told()

    def _all(self) -> list[Pod]:
        return [pod for pod in self.pods.cache.values() if pod["metadata"]["labels"][names.ROLE] == names.ROLE_SLOT]


def units(*numbers: int) -> tuple[str, ...]:
    return tuple(f"node/{GPU}/{number}" for number in numbers)


def _size(pod: Pod) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"][GPU])


async def so(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 20))


def test_what_several_kernels_leave_is_one_slot_of_all_of_it_at_once() -> None:
    async def story() -> None:
        world = World(2)
        await world.grant("a", 0)
        await world.grant("b", 1)
        assert world.bound == [[*units(0)], [*units(1)]]
        del world.leases["a"], world.leases["b"]
        assert await world.grant("c", 0, 1) == [*units(0, 1)], "never refused: its slots of before leave first"
        assert world.bound == [[*units(0, 1)]]
        world.release("c")
        await so(lambda: world.bound == [])

    run(story())


def test_what_one_kernel_leaves_of_several_is_several_slots() -> None:
    async def story() -> None:
        world = World(2)
        await world.grant("a", 0, 1)
        del world.leases["a"]
        await asyncio.gather(world.grant("b", 0), world.grant("c", 1))
        assert world.bound == [[*units(0)], [*units(1)]]

    run(story())


def test_whose_cells_on_many_workers_have_the_gpus_is_said() -> None:
    async def story() -> None:
        world = World(1, foreign=1)
        rank = {
            "metadata": {"name": "rank", "uid": "rank", "labels": names.labels("gw", names.ROLE_RANK, "k", "hal")},
            "spec": {"nodeName": "node", "containers": [{"resources": {"limits": {GPU: "1"}}}]}, "status": {"phase": "Running"},
        }  # fmt: skip
        world.pods.cache["kernels", "rank"] = rank
        with pytest.raises(GpusTaken) as refused:
            await world.grant("a", 0)
        assert "cells on many workers (hal) or other pods of the cluster (" in str(refused.value)

    run(story())


def test_who_needs_two_where_others_have_one_waits_at_the_scheduler_and_has_both_at_once() -> None:
    async def story() -> None:
        world = World(2, foreign=1)
        with pytest.raises(GpusTaken) as refused:
            await world.grant("a", 0, 1)
        assert refused.value.gpus == units(1), "the other is to be had by who needs but one"
        assert (world.bound, world.waiting) == ([], [[*units(0, 1)]])
        assert world.taken == {*units(1)}
        world.others_have(0)
        await so(lambda: world.freed == 1)
        assert world.taken == set()
        assert await world.grant("a", 0, 1) == [*units(0, 1)]
        assert world.bound == [[*units(0, 1)]]

    run(story())


def test_meanwhile_who_needs_one_has_it_and_what_others_leave_is_still_noticed() -> None:
    async def story() -> None:
        world = World(2, foreign=1)
        with pytest.raises(GpusTaken):
            await world.grant("a", 0, 1)
        assert await world.grant("b", 0) == [*units(0)]
        await so(lambda: world.taken == {*units(1)})  # or b would be parked for nothing
        assert (world.bound, world.waiting) == ([[*units(0)]], [[*units(1)]])
        world.others_have(0)
        await so(lambda: world.freed == 1)
        assert world.taken == set()
        del world.leases["b"]
        assert await world.grant("a", 0, 1) == [*units(0, 1)]
        assert (world.bound, world.waiting) == ([[*units(0, 1)]], [])

    run(story())


def test_the_slot_to_whose_device_a_parked_state_must_come_back_is_kept_and_lent_and_goes_with_who_needs_it() -> None:
    async def story() -> None:
        world = World(2)
        world.kernel("a")
        world.kernel("b")
        await world.grant("a", 0)
        [slot] = world.pods.of(names.ROLE_SLOT)
        uid = slot["metadata"]["uid"]
        world.homes["a"] = units(0)
        world.release("a")
        assert world.bound == [[*units(0)]], "a's state can go nowhere else"
        await world.grant("b", 0)
        world.homes["b"] = units(0)
        world.release("b")
        assert (slot["metadata"]["uid"], slot["metadata"]["labels"][names.KERNEL]) == (uid, "b"), "lent, not made anew"
        del world.homes["b"]
        world.settle()
        await so(lambda: slot["metadata"]["ownerReferences"][0]["name"] == "pod-a")
        del world.homes["a"]
        world.settle()
        await so(lambda: world.bound == [])

    run(story())


def test_where_a_slot_has_all_of_its_node_none_is_kept() -> None:
    async def story() -> None:
        world = World(1)
        await world.grant("a", 0)
        world.homes["a"] = units(0)
        world.release("a")
        await so(lambda: world.bound == [])

    run(story())


def test_of_a_slot_that_others_end_the_kernel_is_told_once_and_of_one_that_was_given_back_never() -> None:
    async def story() -> None:
        world = World(2)
        for kernel, number in (("a", 0), ("b", 1)):
            await world.grant(kernel, number)
        [first, second] = sorted(world.pods.of(names.ROLE_SLOT), key=lambda pod: str(pod["metadata"]["annotations"][UNITS]))
        first["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        for kind in ("MODIFIED", "MODIFIED", "DELETED"):
            world.slots.heard(kind, first)
        assert world.taken_back == [units(0)]
        world.release("b")
        for kind in ("MODIFIED", "DELETED"):
            world.slots.heard(kind, second)
        assert world.taken_back == [units(0)]

    run(story())


def test_nothing_waits_at_the_scheduler_once_nobody_does_here() -> None:
    async def story() -> None:
        world = World(2, foreign=1)
        with pytest.raises(GpusTaken):
            await world.grant("a", 0, 1)
        world.waits.clear()
        world.settle()
        await so(lambda: world.waiting == [])
        assert world.taken == set()

    run(story())
