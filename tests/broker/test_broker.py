"""The broker between supervisors (fake, on the real wire) and the lease book (the real one), on a clock that tests move."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.protocol.errors import LeaseError
from gateway.protocol.model import GPU_IN_USE, Phase
from tests.broker.world import World, run
from tests.doubles.fake_supervisor import FakeSupervisor


def test_a_cell_that_waits_gets_a_free_gpu() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        assert kernel.orders[0]["do"] == "grant"
        assert kernel.orders[0]["gpus"] == kernel.orders[0]["visible"] == ["GPU-0"]
        assert kernel.orders[0]["epoch"][0] == world.broker.generation

    run(story)


def test_an_idle_gpu_is_released_after_its_time() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        world.passes(119)
        assert [order["do"] for order in kernel.orders] == ["grant"]
        world.passes(2)
        await world.phase(kernel, Phase.PARKED)
        assert world.lease()["parked_bytes"] == 1000

    run(story, idle_timeout=120.0)


def test_a_gpu_goes_from_an_idle_kernel_to_one_that_waits() -> None:
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        one.want()
        await world.phase(one, Phase.HOLDING)
        two.want()
        await world.phase(two, Phase.HOLDING)
        await world.phase(one, Phase.PARKED)

    run(story)


def test_a_kernel_that_executes_keeps_its_gpu_and_the_waiter_is_told_its_place() -> None:
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        await world.executing(one)
        two.want()
        await world.until(lambda: any(order["do"] == "queue" for order in two.orders))
        place = two.orders[-1]
        assert (place["position"], place["of"]) == (1, 1)
        assert "k1.ipynb" in place["holders"][0]
        world.passes(10000)
        assert "park" not in [order["do"] for order in one.orders]
        one.idle()
        await world.phase(two, Phase.HOLDING)

    run(story)


def test_an_answer_that_refuses_leaves_the_gpu_where_it_is() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.refuse["park"] = "does_not_fit"
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        world.passes(121)
        await world.until(lambda: any(order["do"] == "park" for order in kernel.orders))
        await world.phase(kernel, Phase.HOLDING)

    run(story)


def test_a_machine_that_turns_out_not_to_park_is_known_as_exclusive() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.refuse["park"] = "exclusive"
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        world.passes(121)
        await world.until(lambda: world.broker.snapshot()["gpus"][0]["rung"] == "exclusive")
        world.passes(10000)
        await world.phase(kernel, Phase.HOLDING)
        assert [order["do"] for order in kernel.orders] == ["grant", "park"]

    run(story)


def test_a_kernel_that_turns_out_not_to_park_keeps_its_gpu_and_is_shown_so() -> None:
    async def story(world: World) -> None:
        kernel, other = await world.kernel("k1"), await world.kernel("k2", "bob")
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        kernel.tell(rung="exclusive", rung_reason="it uses managed memory")
        await world.until(lambda: world.lease()["rung"] == "exclusive")
        assert world.lease()["rung_reason"] == "it uses managed memory"
        assert world.broker.snapshot()["gpus"][0]["rung"] == "anywhere", "the next kernel may park"
        other.want()
        await world.phase(other, Phase.WAITING)
        world.passes(10000)
        with pytest.raises(LeaseError, match="managed memory") as refused:
            await world.broker.release("k1")
        assert refused.value.reason == "exclusive"
        kernel.restart()
        await world.phase(other, Phase.HOLDING)
        assert [order["do"] for order in kernel.orders] == ["grant"]

    run(story)


def test_a_kernel_that_is_adopted_exclusive_is_never_asked_to_park() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        kernel.tell(rung="exclusive")
        await world.broker.stop()
        world.broker = world.another()
        await world.broker.start()
        await world.phase(kernel, Phase.HOLDING)
        world.passes(10000)
        assert world.broker.book.kernels["k1"].fixed
        assert [order["do"] for order in kernel.orders] == ["grant"]

    run(story)


def test_a_driver_call_that_hangs_is_shown_and_told_to_those_who_listen() -> None:
    async def story(world: World) -> None:
        heard: list[tuple[str, Any]] = []
        kernel = await world.kernel()
        world.broker.subscribe(lambda name, value: heard.append((name, value)))
        kernel.tell(alarm="NVIDIA's driver has not come back")
        await world.until(lambda: any(name == "lease" and value["alarm"] for name, value in heard))
        assert world.lease()["alarm"] == "NVIDIA's driver has not come back"
        kernel.tell(alarm="")
        await world.until(lambda: heard[-1][1]["alarm"] == "")

    run(story)


def test_a_kernel_that_ends_gives_its_gpu_back() -> None:
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        one.want()
        await world.phase(one, Phase.HOLDING)
        one.run()
        two.want()
        one.die()
        await world.phase(two, Phase.HOLDING)
        assert [lease["kernel_id"] for lease in world.broker.snapshot()["leases"]] == ["k2"]

    run(story)


def test_a_kernel_that_restarts_gives_its_gpu_back() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        kernel.restart()
        await world.phase(kernel, Phase.COLD)
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)

    run(story)


def test_a_kernel_that_dies_while_its_state_comes_back_leaks_no_gpu() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.slow.add("grant")
        kernel.want()
        await world.phase(kernel, Phase.RESUMING)
        kernel.slow.clear()
        kernel.restart()
        await world.phase(kernel, Phase.COLD)
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)

    run(story)


def test_where_there_is_no_gpu_at_all_cells_run_at_once() -> None:
    async def story(world: World) -> None:
        world.backend.gpus.clear()
        broker = world.broker = world.another()
        await broker.start()
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        assert kernel.orders[0]["gpus"] == []
        await broker.stop()

    run(story)


def test_gpus_that_another_broker_has_are_never_leased_and_the_user_is_told_who_has_them() -> None:
    async def story(world: World) -> None:
        world.backend.foreign = {"GPU-0": "gateway 'other' of bob (process 7)"}
        broker = world.broker = world.another()
        await broker.start()
        kernel = await world.kernel()
        kernel.want()
        await world.until(lambda: bool(kernel.orders))
        assert kernel.orders[0]["do"] == "deny"
        assert "gateway 'other' of bob" in kernel.orders[0]["message"]
        world.backend.foreign = {}
        broker._tell(await broker._patrol.inventory())
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        await broker.stop()

    run(story)


def test_a_gpu_on_which_a_kernel_is_that_does_not_answer_is_left_to_it_and_leased_once_it_has_gone() -> None:
    async def story(world: World) -> None:
        one = await world.kernel()
        one.refuse["grant"] = GPU_IN_USE
        one.tell(answer_message="GPU-0 is in use by kernel x of bob (process 7)")
        one.want()
        await world.until(lambda: [order["do"] for order in one.orders] == ["grant", "queue"])
        assert "in use by kernel x of bob" in one.orders[-1]["holders"][0]
        one.refuse.clear()
        world.broker._tell(await world.broker._patrol.inventory())
        await world.phase(one, Phase.HOLDING)

    run(story)


def test_a_supervisor_that_is_silent_for_very_long_keeps_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.broker.link.MOST_PAUSE", 0.01)
    monkeypatch.setattr("gateway.broker.link.SILENCE_SECONDS", 0.05)

    async def story(world: World) -> None:
        silent, waiter = await world.kernel("silent"), await world.kernel("waiter", "bob")
        await world.executing(silent)
        silent.hang_up()
        await world.until(lambda: "doesn't answer" in world.lease("silent")["alarm"])
        waiter.want()
        await world.phase(waiter, Phase.WAITING)
        assert world.lease("silent")["gpus"] == ["GPU-0"]
        silent.listen()
        silent.idle()
        await world.phase(waiter, Phase.HOLDING)
        assert world.lease("silent")["alarm"] == ""

    run(story)


def test_who_waits_for_a_stopped_supervisor_is_told_so_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.broker.link.PING_SECONDS", 0.005)
    monkeypatch.setattr("gateway.broker.link.SILENT_PINGS", 1_000_000)

    async def story(world: World) -> None:
        stopped, waiter = await world.kernel("stopped"), await world.kernel("waiter", "bob")
        stopped.want()
        await world.phase(stopped, Phase.HOLDING)
        stopped.mute = True
        waiter.want()
        await world.until(lambda: world.lease("stopped")["phase"] == Phase.PARKING)
        await world.until(lambda: "doesn't answer" in world.lease("stopped")["alarm"])
        await world.until(lambda: any("doesn't answer" in str(order.get("holders")) for order in waiter.orders))
        assert waiter.orders[-1]["expected"] is None
        world.passes(11)
        world.broker._patrol.find_lost_orders()
        assert world.lease("stopped")["phase"] == Phase.HOLDING, "it is asked for nothing more"
        assert "doesn't answer" in world.lease("stopped")["alarm"]
        world.broker.book.validate()
        stopped.mute = False
        await world.phase(waiter, Phase.HOLDING)
        assert world.lease("stopped")["alarm"] == ""

    run(story)


def test_what_an_earlier_broker_has_ordered_and_this_one_sees_done_is_believed() -> None:
    async def story(world: World) -> None:
        one = FakeSupervisor(owner="lab")
        one.state.lease.gpus, one.state.lease.phase, one.state.lease.wanted = ["GPU-0"], str(Phase.RESUMING), True
        world.backend.supervisors.append(one.listen())
        await world.broker.look_for_kernels()
        assert world.lease()["phase"] == Phase.RESUMING
        one.tell(phase=str(Phase.HOLDING), wanted=False, executing=False, idle_for=0.0)
        await world.phase(one, Phase.HOLDING)
        two = await world.kernel("k2", "bob")
        two.want()
        await world.phase(two, Phase.HOLDING)
        await world.phase(one, Phase.PARKED)

    run(story, owner="lab")


def test_a_kernel_that_is_being_ended_has_its_gpu_until_it_has_gone() -> None:
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        one.want()
        await world.phase(one, Phase.HOLDING)
        world.broker.leave("k1")
        two.want()
        await world.phase(two, Phase.WAITING)
        await world.broker.look_for_kernels()
        assert "k1" not in world.broker.links
        world.broker.remove("k1")
        await world.phase(two, Phase.HOLDING)

    run(story)


def test_an_own_kernel_that_answers_only_now_is_told_of() -> None:
    async def story(world: World) -> None:
        found: list[str] = []
        world.broker.on_found = lambda link: found.append(link.kernel_id)
        for kernel_id, owner in (("mine", "lab"), ("other", "")):
            world.backend.supervisors.append(FakeSupervisor(kernel_id, owner=owner).listen())
        await world.broker.look_for_kernels()
        await world.broker.look_for_kernels()
        assert set(found) == {"mine"}
        assert set(world.broker.links) == {"mine", "other"}

    run(story, owner="lab")


def test_every_order_is_newer_than_the_one_before() -> None:
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        for _ in range(5):
            for each in (one, two):
                each.want()
                await world.phase(each, Phase.HOLDING)
        epochs = [tuple(order["epoch"]) for order in one.orders]
        assert epochs == sorted(set(epochs))

    run(story)


def test_a_gateway_that_starts_again_finds_leases_as_they_are() -> None:
    async def story(world: World) -> None:
        one, two = await world.kernel("k1", owner="lab"), await world.kernel("k2", "bob", owner="other")
        await world.executing(one)
        await world.broker.stop()
        assert not world.backend.claimed
        world.broker = world.another()
        await world.broker.start()
        assert [link.kernel_id for link in world.broker.own()] == ["k1"]
        assert set(world.broker.links) == {"k1", "k2"}
        assert world.lease()["phase"] == "HOLDING"
        two.want()
        await world.until(lambda: any(order["do"] == "queue" for order in two.orders))
        assert one.orders[-1]["do"] == "grant"
        one.idle()
        await world.phase(two, Phase.HOLDING)
        assert one.orders[-1]["epoch"][0] == 2

    run(story, owner="lab")


def test_a_supervisor_that_did_not_answer_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        kernel = FakeSupervisor()
        world.backend.supervisors.append(kernel)
        assert world.broker.own() == []
        assert world.broker.links == {}
        kernel.listen()
        await world.broker.look_for_kernels()
        assert set(world.broker.links) == {"k1"}

    run(story)


def test_an_own_kernel_that_is_silent_is_told_of_and_leased_to_once_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.broker.link.MOST_PAUSE", 0.01)

    async def story(world: World) -> None:
        kernel = FakeSupervisor(owner="lab")
        kernel.state.lease.gpus, kernel.state.lease.phase = ["GPU-0"], str(Phase.HOLDING)
        world.backend.supervisors.append(kernel)
        for _ in range(2):
            await world.broker.look_for_kernels()
        [link] = world.broker.own()
        assert link.silence and not world.broker.links and not world.broker.known and not world.broker.book.kernels
        kernel.listen()
        await world.until(lambda: world.broker.links == {"k1": link})
        assert world.broker.own() == [link] and world.lease("k1")["gpus"] == ["GPU-0"]

    run(story, owner="lab")


@pytest.mark.parametrize("how", ["ends", "is ended"])
def test_a_silent_kernel_that_is_gone_is_dialled_no_more(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr("gateway.broker.link.MOST_PAUSE", 0.01)

    async def story(world: World) -> None:
        kernel = FakeSupervisor(owner="lab")
        world.backend.supervisors.append(kernel)
        await world.broker.look_for_kernels()
        if how == "ends":
            kernel.living = False
        else:
            world.broker.leave("k1")
        await world.until(lambda: not world.broker.own())

    run(story, owner="lab")


def test_a_kernel_that_is_dialled_twice_at_once_has_one_line() -> None:
    async def story(world: World) -> None:
        kernel = FakeSupervisor().listen()
        world.backend.supervisors.append(kernel)
        one, two, _ = await asyncio.gather(world.broker.dial(kernel), world.broker.dial(kernel), world.broker.look_for_kernels())
        assert one is two is world.broker.links["k1"]
        await world.until(lambda: len(kernel._dialers) == 1)

    run(story)


def test_an_older_broker_that_is_refused_lets_go() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel._epoch = (99, 1)
        kernel.want()
        await world.until(lambda: "k1" not in world.broker.book.kernels)
        with pytest.raises(LeaseError):
            await world.broker.release("k1")

    run(story)


def test_an_order_that_was_lost_is_decided_anew() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.mute = True
        kernel.want()
        await world.until(lambda: world.broker._lines.readings["k1"].unanswered)
        await asyncio.sleep(0.02)  # the order arrives, and is lost
        kernel.mute = False
        world.passes(5)
        world.broker._patrol.find_lost_orders()
        assert not kernel.orders
        world.passes(6)
        world.broker._patrol.find_lost_orders()
        await world.phase(kernel, Phase.HOLDING)

    run(story)


def test_a_line_that_broke_is_read_anew() -> None:
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        kernel.hang_up()
        kernel.state.lease.phase, kernel.state.lease.gpus = Phase.COLD, []
        kernel.listen()
        await world.phase(kernel, Phase.COLD)
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)

    run(story)
