"""Workers of bursts that lease GPUs, beside kernels that do."""

from __future__ import annotations

from gateway.broker.guests import Guest
from tests.broker.world import World, run
from tests.doubles.fake_backend import gpu


def guest(name: str, count: int = 1, granted: list[str] | None = None, user: str = "eve") -> Guest:
    return Guest(name, user, count, name, (granted if granted is not None else []).extend, lambda why: None)


def test_a_guest_has_its_gpus_all_at_once_and_until_it_ends() -> None:
    async def story(world: World) -> None:
        granted: list[str] = []
        world.broker.guests.ask(guest("burst", 2, granted))
        await world.until(lambda: len(granted) == 2)
        assert world.broker.guests.idle() == 0
        world.broker.guests.end("burst")
        assert world.broker.guests.idle() == 2

    run(story, gpu("GPU-0"), gpu("GPU-1"))


def test_what_a_kernel_waits_for_is_missed_once_it_has_waited_for_a_while() -> None:
    async def story(world: World) -> None:
        for name in ("burst", "burst.1"):
            granted: list[str] = []
            world.broker.guests.ask(guest(name, granted=granted))
            await world.until(lambda found=granted: len(found) == 1)
        kernel = await world.kernel("k1", "bob")
        kernel.want()
        await world.until(lambda: bool(world.broker.book.queue()))
        assert world.broker.guests.missed(2.0) == (0, "")
        world.passes(3.0)
        assert world.broker.guests.missed(2.0) == (1, world.broker.book.kernels["k1"].label)

    run(story, gpu("GPU-0"), gpu("GPU-1"))


def test_whoever_waits_for_their_own_quota_misses_nothing_of_others() -> None:
    async def story(world: World) -> None:
        world.broker.guests.ask(guest("burst"))
        first, second = await world.kernel("k1", "bob"), await world.kernel("k2", "bob")
        await world.executing(first)
        second.want()
        await world.until(lambda: any(each.place and each.place.quota for each in world.broker.book.queue()))
        world.passes(3.0)
        assert world.broker.guests.missed(2.0) == (0, "")
        assert world.broker.guests.idle() == 1

    run(story, gpu("GPU-0"), gpu("GPU-1"), gpu("GPU-2"), gpus_per_user=1)


def test_a_guests_own_further_wishes_are_not_missed_by_others() -> None:
    async def story(world: World) -> None:
        granted: list[str] = []
        world.broker.guests.ask(guest("burst", granted=granted))
        await world.until(lambda: len(granted) == 1)
        world.broker.guests.ask(guest("burst.1"))
        world.passes(3.0)
        assert world.broker.guests.missed(2.0, but=("burst.1",)) == (0, "")

    run(story, gpu("GPU-0"))
