"""The on-demand broker: how long it stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.broker import process
from gateway.broker.process import BrokerApp, needed


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(process, "FIRST_SECONDS", 0.003)


def broker(**owners: str) -> Any:
    callers = [name for name, owner in owners.items() if not owner]
    return SimpleNamespace(running=True, outdated=False, asked_to_end=asyncio.Event(), callers=lambda: callers)


def ends(found: Any, linger: float = 0.002, changed: Callable[[], bool] = lambda: False) -> bool:
    async def story() -> bool:
        try:
            async with asyncio.timeout(0.2):
                await needed(found, linger, changed)
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
    asked = broker(k1="")
    asked.asked_to_end.set()
    assert ends(asked)
    gone = broker(k1="")
    gone.running = False
    assert ends(gone)


def test_a_changed_configuration_ends_one_that_serves_nobody_so_that_the_next_reads_it() -> None:
    assert ends(broker(k1="lab"), linger=1000, changed=lambda: True)


def test_while_somebody_is_served_a_changed_configuration_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(process.log, "warning", said.append)
    busy = broker(k1="")
    assert not ends(busy, changed=lambda: True)
    assert busy.outdated
    assert [text.partition(".")[0] for text in said] == ["The configuration has changed"]


def test_a_configuration_folder_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    def migrate():
        raise OSError(30, "Read-only file system")

    (tmp_path / "ipython").mkdir()  # a kernel has run here before
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "mounted"))
    monkeypatch.setattr("jupyter_core.migrate.migrate", migrate)
    BrokerApp().initialize([])
