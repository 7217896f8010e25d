"""What a browser is told of a kernel that dies or is restarted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from .supervised import Dialer, Supervised


@pytest.fixture
def own() -> Iterator[Supervised]:
    supervised = Supervised()
    yield supervised
    supervised.end()


@pytest.fixture
def dialer(own: Supervised) -> Dialer:
    return own.dial()


def states(dialer: Dialer, session: str, last: str) -> list[str]:
    """States that belong to no request, as one browser is told them, up to ``last``; nothing is acknowledged."""
    found: list[str] = []
    while last not in found:
        header, parts = dialer.receive()
        if header["t"] == "out" and header["session"] == session and json.loads(parts[1]) == {}:
            found += [state] if (state := json.loads(parts[3]).get("execution_state")) else []
    return found


def test_a_browser_that_hangs_up_on_the_news_of_a_death_hears_it_once_and_at_last_that_the_kernel_is_idle(
    own: Supervised, dialer: Dialer
) -> None:
    dialer.send("attach", session="page", after=None, window=1 << 20)
    dialer.wait("attached")
    dialer.execute("page", "%%cpu\nimport os; os._exit(3)")
    dialer.until(lambda s: not s.alive)
    dialer.send("call", id=100, do="respawn")
    assert states(dialer, "page", "restarting") == ["restarting"]
    dialer.send("detach", session="page", forget=False)
    dialer.send("attach", session="page", after=None, window=1 << 20)
    dialer.wait("attached")
    assert "restarting" not in states(dialer, "page", "idle")


def test_whoever_asks_for_a_restart_is_not_told_of_a_death(own: Supervised, dialer: Dialer) -> None:
    dialer.send("attach", session="page", after=None, window=1 << 20)
    dialer.wait("attached")
    dialer.call("signal", signum=9)
    dialer.until(lambda s: not s.alive)
    dialer.send("call", id=100, do="respawn")
    assert "restarting" not in states(dialer, "page", "idle")
