"""What was to be done while the cluster didn't answer, such as a deletion: asked for again until it does.

So nobody has to remember it, and nothing stays until the gateway starts again. It must never delete another object of the same name where
an identity is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ...protocol.errors import ElasticError
from .api import Kind, KubeApi
from .errors import ApiConflict

log = logging.getLogger(__name__)

SOON, LONGEST = 1.0, 30.0  # seconds between two tries: doubled each time


class Ends:
    """Of one gateway."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._tasks: dict[asyncio.Task[None], str | None] = {}

    @property
    def uids(self) -> set[str]:
        """Of what is still to go."""
        return {uid for uid in self._tasks.values() if uid is not None}

    def later(self, kind: Kind, name: str, uid: str | None = None, grace: int | None = None) -> None:
        """``grace``: seconds, of a pod."""

        async def end() -> None:
            with suppress(ApiConflict):  # another has that name by now
                await self._api.delete(kind, self._namespace, name, uid=uid, grace=grace)

        self.until(f"the end of {name}", end, uid)

    def until(self, what: str, do: Callable[[], Awaitable[None]], uid: str | None = None) -> None:
        """``do`` again and again until it raises no ``ElasticError``; it must do no harm twice. ``what``: for the log."""
        task = asyncio.create_task(self._until(what, do), name=what)
        self._tasks[task] = uid
        task.add_done_callback(self._tasks.pop)

    async def stop(self) -> None:
        """The next gateway finds what is left."""
        for task in self._tasks:
            task.cancel()

    async def _until(self, what: str, do: Callable[[], Awaitable[None]]) -> None:
        pause = SOON
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST)
            try:
                await do()
            except ElasticError as exc:
                log.warning("%s can't be had now, and is tried again in %g s: %s", what, pause, exc)
                continue
            log.info("%s is done, as was asked for while the cluster didn't answer", what)
            return
