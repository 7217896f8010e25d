"""What the broker is asked from outside: releases, holds, policy, the snapshot; and what it tells those who listen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.broker.broker import Broker
from gateway.broker.seat import BROKER
from gateway.protocol.errors import ElasticError, ExecutingError, LeaseError, SettingError
from gateway.protocol.model import Phase, Rung
from tests.broker.world import World, run
from tests.doubles.fake_backend import gpu


def test_release_takes_the_gpu_from_an_idle_kernel_and_never_from_one_that_executes() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        await world.executing(kernel)
        with pytest.raises(ExecutingError):
            await world.broker.release("k1")
        kernel.idle()
        await world.until(lambda: not world.lease()["executing"])
        await world.broker.release("k1")
        await world.phase(kernel, Phase.PARKED)
        kernel.refuse["release"] = "not_holding"
        with pytest.raises(LeaseError) as refused:
            await world.broker.release("k1")
        assert refused.value.reason == "not_holding"
        with pytest.raises(LeaseError):
            await world.broker.release("nobody")

    run(story, idle_timeout=None)


def test_hold_keeps_the_gpu_beyond_its_idle_time() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        await world.broker.hold("k1", 500)
        await world.until(lambda: world.broker.book.kernels["k1"].hold_until == 1500)
        world.passes(400)
        assert [order["do"] for order in kernel.orders] == ["grant"]
        world.passes(101)
        await world.phase(kernel, Phase.PARKED)

    run(story)


def test_a_change_of_policy_holds_at_once() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        world.passes(60)
        world.broker.rules.change({"idle_timeout": 30.0})
        await world.phase(kernel, Phase.PARKED)

    run(story)


def test_a_change_for_one_user_holds_for_nobody_else() -> None:
    async def story(world: World) -> None:
        ana, bo = await world.kernel("k1", "ana"), await world.kernel("k2", "bo")
        for kernel in (ana, bo):
            kernel.want()
            await world.phase(kernel, Phase.HOLDING)
        world.broker.rules.change({"users": {"ana": {"idle_timeout": 5}}})
        world.passes(6)
        await world.phase(ana, Phase.PARKED)
        assert world.broker.book.kernels[bo.kernel_id].phase is Phase.HOLDING
        assert world.broker.explain("k1")["settings"]["idle_timeout"]["level"] == "user"

    run(story, gpu("GPU-0"), gpu("GPU-1"))


def test_a_training_thread_keeps_the_gpu_after_its_cell() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        world.backend.used = True
        world.passes(121)
        await world.until(lambda: world.lease()["executing"])
        assert [order["do"] for order in kernel.orders] == ["grant"]
        assert world.backend.asked[0][:2] == (4242, ["GPU-0"])
        assert world.lease()["idle_since"] is None
        with pytest.raises(ExecutingError):
            await world.broker.release("k1")
        world.passes(10000)
        assert [order["do"] for order in kernel.orders] == ["grant"]
        world.backend.used = False
        await world.until(lambda: not world.lease()["executing"])
        world.passes(121)
        await world.phase(kernel, Phase.PARKED)

    run(story, gpu(simulated=False), use_interval=0.005)


def test_where_kernels_have_a_machine_of_their_own_their_supervisor_says_whether_a_thread_trains() -> None:
    async def story(world: World) -> None:
        world.backend.remote, world.backend.direct, world.backend.used = True, False, True
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        kernel.used = True
        world.passes(121)
        await world.until(lambda: world.lease()["executing"])
        assert [order["do"] for order in kernel.orders] == ["grant"]
        assert not world.backend.asked
        kernel.used = False
        await world.until(lambda: not world.lease()["executing"])
        kernel.refuse["uses"] = "unknown call"  # by a supervisor of an earlier version
        world.passes(121)
        await world.phase(kernel, Phase.PARKED)

    run(story, gpu(simulated=False), use_interval=0.005)


def test_the_work_of_the_cell_that_just_ended_is_not_taken_for_a_threads() -> None:
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        one.want()
        await world.phase(one, Phase.HOLDING)
        world.backend.used = True
        two.want()
        await world.phase(two, Phase.HOLDING)
        assert not world.backend.asked

    run(story, gpu(simulated=False))


def test_a_drained_node_gives_its_gpus_back_starts_nothing_and_goes_on_once_it_is_off() -> None:
    async def story(world: World) -> None:
        told: list[tuple[str, Any]] = []
        world.broker.subscribe(lambda name, value: told.append((name, value)))
        kernel = await world.kernel()
        await world.executing(kernel)
        world.broker.drain("local", True)
        assert world.backend.drained == {"local"}
        assert world.broker.snapshot()["drained"] == ["local"]
        assert [gpu["leasable"] for gpu in world.broker.snapshot()["gpus"]] == [False]
        kernel.idle()
        await world.phase(kernel, Phase.PARKED)
        kernel.want()
        await world.until(lambda: kernel.orders[-1]["do"] == "deny")
        assert kernel.orders[-1]["reason"] == "drained"
        await world.until(lambda: ("drained", ["local"]) in told)
        world.broker.drain("local", False)
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        with pytest.raises(ElasticError, match="There are: local"):
            world.broker.drain("mars", True)

    run(story, idle_timeout=None)


def test_a_broker_knows_after_a_restart_which_node_was_drained() -> None:
    async def story(world: World) -> None:
        world.broker.drain("local", True)
        next_one = world.another()
        await next_one.start()
        assert next_one.snapshot()["drained"] == ["local"]
        await next_one.stop()

    run(story)


def test_the_snapshot_has_the_shape_of_the_contract() -> None:
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        await world.kernel("cpu", count=0)
        one.want()
        await world.phase(one, Phase.HOLDING)
        one.run()
        two.want()
        await world.until(lambda: bool(world.broker.snapshot()["queue"]))
        picture = world.broker.snapshot()
        assert set(picture) == {"gpus", "leases", "queue", "drained", "elsewhere", "generation"}
        assert {"uuid", "node", "flavor", "memory_bytes", "simulated", "rung"} <= set(picture["gpus"][0])
        assert [lease["kernel_id"] for lease in picture["leases"]] == ["k1", "k2"]
        first = picture["leases"][0]
        assert first["phase"] == "HOLDING"
        assert first["gpus"] == ["GPU-0"]
        assert first["since"].endswith("Z")
        assert first["idle_since"] is None
        assert {"kernel_id", "user", "phase", "gpus", "executing", "since", "idle_since", "ends_by", "parked_bytes"} <= set(first)
        assert set(picture["queue"][0]) == {"kernel_id", "user", "notebook", "count", "node", "position", "since", "quota"}
        assert picture["queue"][0]["position"] == 1

    run(story)


def test_each_change_is_told_to_those_who_listen() -> None:
    async def story(world: World) -> None:
        heard: list[tuple[str, Any]] = []
        end = world.broker.subscribe(lambda name, value: heard.append((name, value)))
        kernel = await world.kernel()
        kernel.want()
        await world.until(lambda: any(name == "lease" and value["phase"] == "HOLDING" for name, value in heard))
        kernel.die()
        await world.until(lambda: heard[-1] == ("lease_gone", {"kernel_id": "k1"}))
        end()
        await world.kernel("k2")
        await asyncio.sleep(0)
        assert heard[-1][0] == "lease_gone"

    run(story)


def test_a_broker_that_was_stopped_gives_no_orders() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        await world.broker.stop()
        await world.until(lambda: not kernel._dialers)
        kernel.want()
        world.broker.tick()
        assert kernel.orders == []

    run(story)


def test_all_gpus_are_visible_where_the_admin_wants_that() -> None:
    async def story(world: World) -> None:
        world.broker._orders._visible = "all"
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        assert kernel.orders[0]["visible"] == [*kernel.orders[0]["gpus"], *({"GPU-0", "GPU-1"} - set(kernel.orders[0]["gpus"]))]

    run(story, gpu("GPU-0"), gpu("GPU-1", rung=Rung.ANYWHERE))


def test_a_backend_that_is_not_set_up_is_a_clear_error() -> None:
    from traitlets.config import Config

    class Parent:
        config = Config({"ElasticGateway": {"backend": "kubernetes"}})

    with pytest.raises(SettingError, match=r"KubernetesBackend\.profiles"):
        Broker(Parent(), kind=BROKER)  # type: ignore[arg-type]
