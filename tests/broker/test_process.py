"""The on-demand broker: how long it stays."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.broker import process
from gateway.broker.process import needed


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(process, "FIRST_SECONDS", 0.003)


def broker(**owners: str) -> Any:
    links = {name: SimpleNamespace(supervisor=SimpleNamespace(owner=owner)) for name, owner in owners.items()}
    return SimpleNamespace(running=True, links=links)


def ends(found: Any, linger: float = 0.002, asked: bool = False) -> bool:
    async def story() -> bool:
        event = asyncio.Event()
        if asked:
            event.set()
        try:
            async with asyncio.timeout(0.2):
                await needed(found, event, linger)
        except TimeoutError:
            return False
        return True

    return asyncio.run(story())


def test_it_ends_when_nobody_came_and_when_everybody_has_gone() -> None:
    assert ends(broker())


def test_it_stays_while_a_process_has_a_kernel() -> None:
    assert not ends(broker(k1=""))


def test_a_gateways_kernels_do_not_keep_it() -> None:
    assert ends(broker(k1="lab"))


def test_it_ends_when_it_is_asked_to_and_when_it_has_handed_over() -> None:
    assert ends(broker(k1=""), asked=True)
    gone = broker(k1="")
    gone.running = False
    assert ends(gone)
