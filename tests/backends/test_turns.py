"""Whose kernel starts next, where many are to start: in virtual time, without any process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.backends.turns import LONG_SECONDS, Turns
from tests.server.doubles import turn


class Clock:
    """Timers that ring when a test says so."""

    def __init__(self) -> None:
        self.calls: dict[object, Callable[[], None]] = {}

    def __call__(self, seconds: float, call: Callable[[], None]) -> Timer:
        assert seconds == LONG_SECONDS
        timer = Timer(self)
        self.calls[timer] = call
        return timer

    def ring(self) -> None:
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call()


class Timer:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def cancel(self) -> None:
        self.clock.calls.pop(self, None)


class Line:
    """Kernels that want to start, and who has begun so far."""

    def __init__(self, most: int) -> None:
        self.clock = Clock()
        self.turns = Turns(most, self.clock)
        self.begun: list[str] = []
        self.told: dict[str, list[str]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *kernels: str, user: str = "ada") -> None:
        for kernel in kernels:
            self.tasks[kernel] = asyncio.create_task(self._one(kernel, user))
            await turn()

    async def _one(self, kernel: str, user: str) -> None:
        await self.turns.take(kernel, user, self.told.setdefault(kernel, []).append)
        self.begun.append(kernel)

    async def done(self, kernel: str) -> None:
        self.turns.give(kernel)
        await turn()


def test_so_many_start_and_the_others_wait_in_order() -> None:
    async def story() -> None:
        line = Line(2)
        await line.come("a", "b", "c", "d")
        assert line.begun == ["a", "b"] and not line.told["a"]
        [told] = line.told["c"]
        assert "2 kernels at a time (LocalBackend.starts_at_once)" in told and "2 came before" in told
        await line.done("b")
        assert line.begun == ["a", "b", "c"] and line.told["c"][1:] == [""]
        await line.done("a")
        await line.done("nobody")
        assert line.begun == ["a", "b", "c", "d"]

    asyncio.run(story())


def test_another_user_is_next_however_many_one_has_asked_for() -> None:
    async def story() -> None:
        line = Line(2)
        await line.come("a", "b", "c", "d", "e")
        await line.come("bob's", user="bob")
        await line.done("a")
        assert line.begun == ["a", "b", "bob's"]
        await line.done("bob's")
        assert line.begun == ["a", "b", "bob's", "c"]

    asyncio.run(story())


def test_whoever_is_cancelled_while_it_waits_keeps_nobody_from_starting() -> None:
    async def story() -> None:
        line = Line(1)
        await line.come("a", "b", "c")
        line.tasks["b"].cancel()
        await line.done("a")
        assert line.begun == ["a", "c"]

    asyncio.run(story())


def test_one_that_is_cancelled_just_as_its_turn_comes_passes_it_on() -> None:
    async def story() -> None:
        line = Line(1)
        await line.come("a", "b", "c")
        line.turns.give("a")
        line.tasks["b"].cancel()
        await turn()
        await turn()
        assert line.begun == ["a", "c"]

    asyncio.run(story())


def test_a_start_that_takes_long_waits_for_something_else_and_holds_nobody_up() -> None:
    async def story() -> None:
        line = Line(1)
        await line.come("a", "b", "c")
        line.clock.ring()
        await turn()
        assert line.begun == ["a", "b"]
        await line.done("a")  # it is through at last; that is nobody's turn any more
        assert line.begun == ["a", "b"]
        await line.done("b")
        assert line.begun == ["a", "b", "c"]

    asyncio.run(story())


def test_without_a_limit_nobody_waits() -> None:
    async def story() -> None:
        line = Line(0)
        await line.come(*(str(n) for n in range(100)))
        assert len(line.begun) == 100 and not line.clock.calls

    asyncio.run(story())
