"""Where GPUs are accounted for elsewhere: a grant is told to the kernel once it is true there."""

from __future__ import annotations

from gateway.backends.base import Foreign
from gateway.protocol.model import Phase, Rung
from tests.broker.world import World, run
from tests.doubles.fake_backend import gpu


def slots(story):
    async def with_slots(world: World) -> None:
        world.backend.direct = False
        await story(world)

    return with_slots


def test_a_kernel_is_told_of_its_gpu_only_once_that_is_its_own_and_by_the_devices_name() -> None:
    @slots
    async def story(world: World) -> None:
        world.backend.slow = True
        kernel = await world.kernel()
        kernel.want()
        await world.until(lambda: bool(world.backend.acquired))
        assert kernel.orders == []
        assert world.lease()["phase"] == "RESUMING"
        world.passes(60.0)
        world.broker._patrol.find_lost_orders()
        assert world.lease()["phase"] == "RESUMING", "it takes as long as it takes"
        world.backend.slow = False
        await world.phase(kernel, Phase.HOLDING)
        assert (kernel.orders[0]["gpus"], kernel.orders[0]["devices"]) == (["GPU-0"], ["real-GPU-0"])
        assert world.backend.slots == {("GPU-0",): "k1"}

    run(story)


def test_what_is_left_goes_back_where_nobody_waits_and_is_handed_over_where_somebody_does() -> None:
    @slots
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        one.want()
        await world.phase(one, Phase.HOLDING)
        two.want()
        await world.phase(two, Phase.HOLDING)
        assert world.backend.slots == {("GPU-0",): "k2"}
        await world.broker.release("k2")
        await world.phase(two, Phase.PARKED)
        await world.until(lambda: world.backend.slots == {})

    run(story)


def test_a_gpu_that_others_have_is_waited_for_and_had_when_it_comes_back() -> None:
    @slots
    async def story(world: World) -> None:
        world.backend.taken = "other pods of the cluster"
        kernel = await world.kernel()
        kernel.want()
        await world.until(lambda: any(order["do"] == "queue" for order in kernel.orders))
        assert [order["do"] for order in kernel.orders] == ["queue"], "no error: it waits"
        assert kernel.orders[-1]["holders"] == ["other pods of the cluster"]
        world.backend.taken = ""
        world.broker._tell(await world.broker._patrol.inventory())
        await world.phase(kernel, Phase.HOLDING)

    run(story)


def test_where_others_have_one_of_two_who_needs_both_waits_and_who_needs_one_has_the_other() -> None:
    @slots
    async def story(world: World) -> None:
        world.backend.taken = "other pods of the cluster"
        both = await world.kernel(count=2)
        both.want()
        await world.until(lambda: any(order["do"] == "queue" for order in both.orders))
        world.backend.taken = ""
        one = await world.kernel("k2", "bob")
        one.want()
        await world.phase(one, Phase.HOLDING)
        assert one.orders[0]["gpus"] == ["GPU-0"]
        assert world.lease()["phase"] == "WAITING"

    run(story, gpu("GPU-0"), gpu("GPU-1"))


def test_of_two_gpus_the_free_one_is_had_where_others_have_the_first() -> None:
    @slots
    async def story(world: World) -> None:
        world.backend.foreign = {"GPU-0": "others"}
        world.broker._tell(await world.broker._patrol.inventory())
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        assert kernel.orders[0]["gpus"] == ["GPU-1"]

    run(story, gpu("GPU-0"), gpu("GPU-1"))


def test_others_that_wait_get_the_gpu_as_soon_as_its_kernel_is_idle_and_kernels_wait_for_it_then() -> None:
    @slots
    async def story(world: World) -> None:
        kernel = await world.kernel()
        await world.executing(kernel)
        world.broker._foreign_waits((Foreign("pod x/y", 1, ("local",)),))
        assert world.broker.snapshot()["queue"][0]["kernel_id"] == "pod x/y"
        assert kernel.orders[-1]["do"] == "grant", "a cell that runs is never cut short"
        kernel.idle()
        await world.phase(kernel, Phase.PARKED)
        await world.until(lambda: world.backend.slots == {})
        assert [lease["kernel_id"] for lease in world.broker.snapshot()["leases"]] == ["k1"]
        kernel.want()
        await world.phase(kernel, Phase.WAITING)
        world.broker._foreign_waits(())
        await world.phase(kernel, Phase.HOLDING)

    run(story, min_hold=0.0)


def test_others_that_wait_already_as_the_broker_starts_count_too() -> None:
    @slots
    async def story(world: World) -> None:
        kernel = await world.kernel()
        await world.executing(kernel)
        world.backend.waiting_outside = (Foreign("pod x/y", 1, ("local",)),)
        broker = world.broker = world.another()
        await broker.start()
        await world.until(lambda: [waiter["kernel_id"] for waiter in broker.snapshot()["queue"]] == ["pod x/y"])
        await broker.stop()

    run(story)


def test_others_wait_for_no_drained_node_and_again_for_one_that_is_back() -> None:
    @slots
    async def story(world: World) -> None:
        kernel = await world.kernel()
        await world.executing(kernel)
        world.broker._foreign_waits((Foreign("pod x/y", 1, ("local",)),))
        world.broker.drain("local", True)
        assert world.broker.snapshot()["queue"] == []
        world.broker.drain("local", False)
        assert [waiter["kernel_id"] for waiter in world.broker.snapshot()["queue"]] == ["pod x/y"]
        world.broker.book.validate()

    run(story)


def test_others_that_nothing_here_could_serve_press_on_nobody() -> None:
    @slots
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        world.broker._foreign_waits((Foreign("pod x/y", 1, ()), Foreign("pod x/z", 7, ("local",))))
        world.passes(1.0)
        assert world.lease()["phase"] == "HOLDING"
        world.broker._foreign_waits(())
        world.broker.book.validate()

    run(story)


def test_on_a_cluster_a_node_without_gpus_is_an_error_for_who_needs_one() -> None:
    @slots
    async def story(world: World) -> None:
        world.backend.remote = True
        world.backend.gpus.clear()
        broker = world.broker = world.another()
        await broker.start()
        kernel = await world.kernel()
        kernel.want()
        await world.until(lambda: bool(kernel.orders))
        assert kernel.orders[0]["do"] == "deny"
        assert "node_selector" in kernel.orders[0]["message"]
        await world.until(lambda: world.lease()["phase"] == "COLD")
        await broker.stop()

    run(story)


def test_what_a_kernel_does_for_a_newer_broker_is_none_of_ours_though_it_has_refused_nothing() -> None:
    @slots
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        newer = [world.broker.generation + 1, 1]
        kernel.tell(phase=Phase.PARKED, gpus=[], order=newer, answer="done")  # as that one has told it to
        await world.until(lambda: world.broker.book.kernels.get("k1") is None)
        assert world.backend.slots == {("GPU-0",): "k1"}, "that one hands it over"

    run(story)


def test_the_slot_of_a_kernel_that_obeys_a_newer_broker_is_left_alone() -> None:
    @slots
    async def story(world: World) -> None:
        kernel = await world.kernel()
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        kernel._epoch = (world.broker.generation + 1, 1)  # the newer one has spoken
        await world.broker.release("k1")
        await world.until(lambda: world.broker.book.kernels.get("k1") is None)
        assert world.backend.slots == {("GPU-0",): "k1"}

    run(story)


def test_the_place_where_gpus_are_counted_is_told_which_of_them_a_parked_state_must_have_again() -> None:
    @slots
    async def story(world: World) -> None:
        one, two = await world.kernel("k1"), await world.kernel("k2", "bob")
        for kernel, rung in ((one, "same-gpu"), (two, "anywhere")):
            kernel.tell(rung=rung)
            kernel.want()
            await world.phase(kernel, Phase.HOLDING)
            await world.broker.release(kernel.kernel_id)
            await world.phase(kernel, Phase.PARKED)
        assert world.backend.homes == {"k1": ("GPU-0",)}

    run(story)


def test_so_it_is_where_the_gpu_itself_is_known_for_a_driver_of_that_kind() -> None:
    @slots
    async def story(world: World) -> None:
        kernel = await world.kernel("k1")
        kernel.want()
        await world.phase(kernel, Phase.HOLDING)
        await world.broker.release("k1")
        await world.phase(kernel, Phase.PARKED)
        assert world.backend.homes == {"k1": ("GPU-0",)}

    run(story, gpu(rung=Rung.SAME_GPU))


def test_a_kernel_leaves_a_gpu_that_others_take_back_at_once_if_it_is_idle_and_else_after_its_cell() -> None:
    @slots
    async def story(world: World) -> None:
        idle, busy = await world.kernel("k1"), await world.kernel("k2", "bob")
        idle.want()
        await world.phase(idle, Phase.HOLDING)
        await world.executing(busy)
        assert world.backend.on_taken is not None
        world.backend.on_taken(("GPU-0", "GPU-1", "GPU-2"))
        await world.phase(idle, Phase.PARKED)
        assert busy.orders[-1]["do"] == "grant", "a cell that runs is never cut short"
        busy.idle()
        await world.phase(busy, Phase.PARKED)
        await world.until(lambda: world.backend.slots == {})

    run(story, gpu("GPU-0"), gpu("GPU-1"))


def test_a_kernel_that_ends_while_its_gpu_is_on_its_way_leaves_nothing() -> None:
    @slots
    async def story(world: World) -> None:
        world.backend.slow = True
        kernel = await world.kernel()
        kernel.want()
        await world.until(lambda: bool(world.backend.acquired))
        world.broker.remove("k1")
        world.backend.slow = False
        other = await world.kernel("k2", "bob")
        other.want()
        await world.phase(other, Phase.HOLDING)
        await world.until(lambda: world.backend.slots == {("GPU-0",): "k2"})
        assert kernel.orders == []

    run(story)
