"""The line between the gateway and one supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from gateway.broker import link as link_module
from gateway.broker.link import KernelLink
from gateway.protocol.errors import ExecutingError, SupervisorLost, VersionError
from gateway.protocol.model import KernelState
from tests.doubles.fake_supervisor import FakeSupervisor


class Browser:
    """A subscriber that writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.something = asyncio.Event()

    def _note(self, *what: Any) -> None:
        self.heard.append(what)
        self.something.set()

    def attached(self, n: int, lost: int, seen: int) -> None:
        self._note("attached", n, lost, seen)

    def deliver(self, n: int, channel: str, parts: list[bytes]) -> None:
        self._note("deliver", n, channel, parts)

    def taken(self, m: int) -> None:
        self._note("taken", m)

    def cut(self, reason: str) -> None:
        self._note("cut", reason)

    def lost(self, reason: str) -> None:
        self._note("lost", reason)

    async def hears(self, kind: str, count: int = 1) -> None:
        while sum(what[0] == kind for what in self.heard) < count:
            self.something.clear()
            await self.something.wait()


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


async def opened(supervisor: FakeSupervisor) -> KernelLink:
    link = KernelLink(supervisor)
    await link.open(["owner", "broker", "sessions"], generation=7, timeout=5)
    return link


def test_opening_returns_what_the_supervisor_says_of_itself() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor(count=2).listen()
        link = await opened(supervisor)
        assert link.state.lease.count == 2
        assert link.connected
        assert supervisor.hellos[0]["generation"] == 7
        assert supervisor.hellos[0]["roles"] == ["owner", "broker", "sessions"]
        link.close()

    run(story())


def test_each_new_state_reaches_the_listeners() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        states: list[KernelState] = []
        end = link.on_state(lambda _, state: states.append(state))
        supervisor.run()
        await link.until(lambda state: state.lease.executing)
        assert [state.lease.executing for state in states] == [True]
        end()
        supervisor.idle()
        await link.until(lambda state: not state.lease.executing)
        assert len(states) == 1
        link.close()

    run(story())


def test_messages_are_delivered_whole_and_in_order() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        browser = Browser()
        link.attach("s1", browser)
        await browser.hears("attached")
        for at in range(1000):
            supervisor.publish("s1", [b"{}", b"{}", b"{}", b"%d" % at, b"\xff\x00"])
        await browser.hears("deliver", 1000)
        delivered = [what for what in browser.heard if what[0] == "deliver"]
        assert [n for _, n, _, _ in delivered] == list(range(1, 1001))
        assert [parts[3] for *_, parts in delivered] == [b"%d" % at for at in range(1000)]
        assert delivered[0][2:] == ("iopub", [b"{}", b"{}", b"{}", b"0", b"\xff\x00"])
        link.close()

    run(story())


def test_a_listener_that_fails_costs_another_no_message() -> None:
    class Broken(Browser):
        def deliver(self, n: int, channel: str, parts: list[bytes]) -> None:
            raise RuntimeError("its own fault")

    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        broken, browser = Broken(), Browser()
        link.attach("s1", broken)
        link.attach("s2", browser)
        await browser.hears("attached")
        supervisor.publish("s1", [b"{}"])
        supervisor.publish("s2", [b"{}"])
        await browser.hears("deliver")
        link.close()

    run(story())


def test_a_browser_that_comes_back_takes_its_own_place() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        old, new = Browser(), Browser()
        link.attach("s1", old)
        link.attach("s1", new, after=5)
        while ("attached", 5, 0, 0) not in new.heard:  # after the answer to the old one, perhaps
            await asyncio.sleep(0.01)
        assert old.heard[-1] == ("cut", "replaced")
        link.detach("s1", subscriber=old)
        supervisor.publish("s1", [b"{}"])
        await new.hears("deliver")
        link.close()

    run(story())


def test_a_call_returns_the_answer_or_raises_the_error_that_was_answered() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        await link.call("hold", seconds=5)
        assert supervisor.calls[0]["seconds"] == 5
        supervisor.refuse["release"] = "executing"
        with pytest.raises(ExecutingError):
            await link.call("release")
        link.close()

    run(story())


def test_a_supervisor_that_has_left_a_call_unanswered_is_asked_again_once_it_has_said_something() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        supervisor.mute = True
        with pytest.raises(SupervisorLost, match=r"within 0\.05 seconds"):
            await link.call("signal", timeout=0.05, signum=2)
        with pytest.raises(SupervisorLost, match=r"doesn't answer: is it stopped.*Try again in a while, or delete"):
            await link.call("signal", timeout=1e6, signum=2)
        supervisor.mute = False
        with pytest.raises(SupervisorLost):
            await link.call("signal", timeout=1e6, signum=3)
        while link._unanswered:
            await asyncio.sleep(0.001)
        await link.call("signal", signum=15)
        assert [call["signum"] for call in supervisor.calls] == [15], "what was refused is not done later"
        link.close()

    run(story())


def test_one_slow_answer_among_others_is_no_silence() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        supervisor.mute = True
        asking = asyncio.create_task(link.call("signal", timeout=0.1, signum=2))
        await asyncio.sleep(0.01)
        supervisor.tell(hold_for=9.0)
        with pytest.raises(SupervisorLost):
            await asking
        supervisor.mute = False
        await link.call("signal", signum=3)
        link.close()

    run(story())


def test_a_supervisor_that_ends_loses_its_browsers_and_its_calls() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        browser, lost = Browser(), asyncio.Event()
        link.attach("s1", browser)
        link.on_lost(lambda *_: lost.set())
        await browser.hears("attached")
        supervisor.mute = True
        call = asyncio.ensure_future(link.call("signal", signum=2))
        await asyncio.sleep(0)
        supervisor.die()
        await lost.wait()
        with pytest.raises(SupervisorLost):
            await call
        assert browser.heard[-1][0] == "lost"
        with pytest.raises(SupervisorLost, match="ended"):
            await link.until(lambda state: False)
        late = Browser()
        link.attach("s2", late)
        assert late.heard == [("lost", link.gone)]

    run(story())


def test_a_line_that_breaks_is_dialled_again_while_the_supervisor_lives() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        browser = Browser()
        link.attach("s1", browser)
        await browser.hears("attached")
        supervisor.hang_up()
        await browser.hears("cut")
        assert browser.heard[-1] == ("cut", "line_broken")
        supervisor.state.lease.hold_for = 9.0
        supervisor.listen()
        await link.until(lambda state: state.lease.hold_for == 9.0)
        assert link.connected
        assert len(supervisor.hellos) == 2
        link.attach("s1", browser)
        await browser.hears("attached", 2)
        link.close()

    run(story())


def test_a_call_whose_line_breaks_is_told_what_became_of_the_supervisor() -> None:
    async def story(lives: bool) -> str:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        supervisor.mute = True
        call = asyncio.ensure_future(link.call("respawn"))
        await asyncio.sleep(0)
        supervisor.hang_up()
        while link.connected:
            await asyncio.sleep(0)
        supervisor.mute, supervisor.living = False, lives
        if lives:
            supervisor.listen()
        with pytest.raises(SupervisorLost) as told:
            await call
        link.close()
        return str(told.value)

    assert "try again" in asyncio.run(story(lives=True))
    assert "ended" in asyncio.run(story(lives=False))


def test_a_supervisor_that_has_forgotten_us_is_greeted_anew() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        supervisor.forget_dialers()
        supervisor.state.lease.hold_for = 9.0
        link.ack("s1", 1)
        await link.until(lambda state: state.lease.hold_for == 9.0)
        link.close()

    run(story())


def test_nobody_at_the_address_is_told_at_once() -> None:
    async def story() -> None:
        link = KernelLink(FakeSupervisor())
        with pytest.raises(SupervisorLost, match="nobody answers"):
            await link.open(["owner"], timeout=25)

    run(story())


def test_a_supervisor_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        supervisor.mute = True
        with pytest.raises(SupervisorLost, match=r"within 0\.05 seconds\. Try again in a while, or delete"):
            await KernelLink(supervisor).open(["owner"], timeout=0.05)

    run(story())


def test_silence_breaks_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "PING_SECONDS", 0.005)

    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        supervisor.mute = True
        browser = Browser()
        link._subscribers["s1"] = browser
        await browser.hears("cut")
        supervisor.mute = False
        supervisor.state.lease.hold_for = 9.0
        await link.until(lambda state: state.lease.hold_for == 9.0)
        link.close()

    run(story())


def test_versions_without_overlap_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module.wire, "NEWEST_VERSION", 1)

    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        monkeypatch.setattr(link_module.wire, "OLDEST_VERSION", 99)
        with pytest.raises(VersionError):
            await KernelLink(supervisor).open(["owner"], timeout=5)

    run(story())


def test_a_message_that_makes_no_sense_is_dropped_and_nothing_else() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        assert supervisor._socket is not None
        for frames in ([b"not json"], [b"[]"], [b"{}"], [b'{"t":"out"}'], [b'{"t":"state","state":3}'], [b'{"t":"from-the-future"}']):
            supervisor._socket.send_multipart([supervisor._dialers[0], *frames])
        supervisor.tell(hold_for=9.0)
        await link.until(lambda state: state.lease.hold_for == 9.0)
        link.close()

    run(story())


def test_hanging_up_says_goodbye_and_tells_browsers_to_come_back() -> None:
    async def story() -> None:
        supervisor = FakeSupervisor().listen()
        link = await opened(supervisor)
        browser = Browser()
        link.attach("s1", browser)
        await browser.hears("attached")
        link.close()
        assert browser.heard[-1] == ("cut", "line_broken")
        while supervisor._dialers:
            await asyncio.sleep(0)

    run(story())
