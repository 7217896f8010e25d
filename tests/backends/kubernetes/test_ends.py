"""What is deleted later, because the cluster doesn't answer now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.backends.kubernetes import ends
from gateway.backends.kubernetes.api import PODS
from gateway.backends.kubernetes.errors import ApiUnavailable


class Server:
    """The part of an API server that deletes, down for so many requests."""

    def __init__(self, down: int) -> None:
        self.down, self.deleted = down, list[Any]()

    async def delete(self, kind: Any, namespace: str, name: str, *, uid: str | None, grace: int | None) -> None:
        self.down -= 1
        if self.down >= 0:
            raise ApiUnavailable("no answer")
        self.deleted.append((kind, namespace, name, uid, grace))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "SOON", 0.0)


async def done(later: ends.Ends) -> None:
    async with asyncio.timeout(5):
        while later.uids:
            await asyncio.sleep(0)


def test_a_pod_is_asked_to_end_until_the_cluster_answers_with_its_identity_and_grace() -> None:
    async def story() -> None:
        server = Server(down=3)
        later = ends.Ends(server, "kernels")  # type: ignore[arg-type]
        later.later(PODS, "kernel-a", "uid-a", 30)
        assert later.uids == {"uid-a"}, "nobody takes it for a kernel that goes on meanwhile"
        await done(later)
        assert server.deleted == [(PODS, "kernels", "kernel-a", "uid-a", 30)]

    asyncio.run(story())


def test_a_gateway_that_stops_leaves_the_rest_to_the_next() -> None:
    async def story() -> None:
        server = Server(down=1 << 30)
        later = ends.Ends(server, "kernels")  # type: ignore[arg-type]
        later.later(PODS, "kernel-a", "uid-a", 30)
        await asyncio.sleep(0)
        await later.stop()
        await done(later)
        assert server.deleted == []

    asyncio.run(story())
