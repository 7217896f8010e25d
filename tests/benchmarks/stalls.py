"""A server extension for the benchmarks: how much later than asked for the gateway's event loop gets to a timer, and how much
computing kept it from it.

It must never be part of the product: a timer every few milliseconds keeps an idle machine awake.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.application import ServerApp
from tornado.web import authenticated

EVERY = 0.005  # seconds


class StallsHandler(APIHandler):
    """POST begins anew; GET gives how late each timer has been since then, and how long the loop's thread computed meanwhile, which is
    how late it would have been on a processor of its own: two lists, in milliseconds."""

    auth_resource = "stalls"

    def initialize(self, seen: list[tuple[float, float]]) -> None:
        self._seen = seen

    @authenticated
    async def get(self) -> None:
        self.finish({"late": [late for late, _ in self._seen], "computed": [computed for _, computed in self._seen]})

    @authenticated
    async def post(self) -> None:
        self._seen.clear()
        self.finish({})


async def _measure(seen: list[tuple[float, float]]) -> None:
    while True:
        asked, computed = time.perf_counter(), time.thread_time()
        await asyncio.sleep(EVERY)
        seen.append((1000 * (time.perf_counter() - asked - EVERY), 1000 * (time.thread_time() - computed)))


def _load_jupyter_server_extension(app: ServerApp) -> None:
    seen: list[tuple[float, float]] = []
    app.web_app.add_handlers(".*$", [("/stalls", StallsHandler, {"seen": seen})])

    async def begin() -> None:
        app.web_app.settings["stalls"] = asyncio.create_task(_measure(seen))  # kept, or it would be collected

    app.io_loop.add_callback(begin)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": __name__}]
