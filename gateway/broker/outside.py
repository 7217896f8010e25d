"""A process that has kernels but is no gateway: papermill, nbclient, a script, a plain Jupyter server.

Its kernels' lines live on a thread with an event loop of its own, so that they are served whatever the process does meanwhile and
whichever event loop asks. It must never outlive the process, nor keep it from ending.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..backends.base import Backend, Supervisor
from ..protocol.errors import SettingError
from .client import BrokerClient
from .context import new_context
from .link import KernelLink

T = TypeVar("T")

_all: dict[tuple[int, str], Outside] = {}
_guard = threading.Lock()


class Outside:
    """One a process and runtime folder. Everything but ``run`` happens on its own loop."""

    def __init__(self, backend: Backend) -> None:
        if backend.places is None:
            raise SettingError("Without a gateway kernels run on this machine: leave ElasticGateway.backend at 'local'.")
        self._loop = asyncio.new_event_loop()
        self._context = new_context()
        self._broker = BrokerClient(backend.places)
        self._thread = threading.Thread(target=self._loop.run_forever, name="elastic kernels", daemon=True)
        self._thread.start()
        self._pid = os.getpid()
        atexit.register(self._close)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` on our loop, from any other. Cancelling this cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def broker_ready(self) -> None:
        """Find or start a broker, ahead of the first kernel. Raises ``BrokerUnavailable``."""
        await self._broker.ready()

    async def dial(self, supervisor: Supervisor) -> KernelLink:
        """An open line to one of this process's supervisors. Raises ``SupervisorLost``."""
        link = KernelLink(supervisor, self._context)
        await link.open(["owner"])
        return link

    async def register(self, supervisor: Supervisor) -> None:
        """Have a broker lease to its kernel. Raises ``BrokerUnavailable``."""
        await self._broker.register(supervisor.kernel_id, supervisor.place)

    def forget(self, kernel_id: str) -> None:
        """It is about to end. To be called on our loop."""
        self._broker.forget(kernel_id)

    def _close(self) -> None:
        """The process ends: nothing may be left half done, nor waited for."""
        if os.getpid() == self._pid:
            self._loop.call_soon_threadsafe(self._cancel_all)
            self._thread.join(1.0)

    def _cancel_all(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_soon(self._loop.call_soon, self._loop.stop)  # once they have been told


def outside(backend: Backend) -> Outside:
    """This process's own, made when first asked for (and anew after a fork, which takes no thread along)."""
    key = os.getpid(), str(backend.places.root if backend.places else "")
    with _guard:
        if key not in _all:
            _all[key] = Outside(backend)
        return _all[key]
