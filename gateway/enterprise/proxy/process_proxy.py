"""What Enterprise Gateway 3.3 calls a process proxy: it starts, signals and watches a kernel that the elastic gateway runs.

It is imported by Enterprise Gateway alone, and must never block its event loop: what it does at the elastic gateway is begun here and seen
by ``poll``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from typing import Any, ClassVar

from enterprise_gateway.services.processproxies.processproxy import BaseProcessProxyABC

from .bridge import Bridge
from .elsewhere import Elsewhere, Refused, elsewhere

LOOK_SECONDS = 0.2  # between two looks at a kernel that is starting
INTERRUPT_SECONDS = 2.0  # that an end waits for an interrupt before it
DEFAULT_KERNEL = "elastic-python"
_CHANNELS = ("shell", "iopub", "stdin", "hb", "control")
_NOT_OURS = ("KERNEL_GATEWAY", "KERNEL_LANGUAGE", "KERNEL_ID")  # what Enterprise Gateway tells launchers of its own


class ElasticProcessProxy(BaseProcessProxyABC):
    """Of one kernel. Of a kernelspec's ``process_proxy.config`` it reads ``url``, ``token_file`` and ``ca_file`` (see ``Elsewhere``),
    ``kernel_name`` (the kernelspec of the elastic gateway, ``elastic-python`` by default), and what every process proxy does
    (``authorized_users``, ``unauthorized_users``, ``port_range``)."""

    _endings: ClassVar[dict[str, asyncio.Task[None]]] = {}  # under way, by kernel; a restart has a process proxy of its own

    def __init__(self, kernel_manager: Any, proxy_config: dict[str, Any]) -> None:
        super().__init__(kernel_manager, proxy_config)
        self.ip = self.kernel_manager.ip = "127.0.0.1"  # where its sockets are: here, whatever machine the kernel runs on
        self._name = str(proxy_config.get("kernel_name") or DEFAULT_KERNEL)
        self._bridge: Bridge | None = None
        self._status: int | None = None  # None: it lives
        self._tasks: set[asyncio.Task[None]] = set()

    async def launch_process(self, kernel_cmd: Any, **kwargs: Any) -> ElasticProcessProxy:
        """Once the kernel runs; an HTTP error with the elastic gateway's words where it doesn't come up."""
        await super().launch_process(kernel_cmd, **kwargs)
        try:
            gateway = self._elsewhere()
            if self.kernel_id in self._endings:  # a restart: the one before has to leave its id
                await asyncio.wait({self._endings[self.kernel_id]})
            await gateway.start(self.kernel_id, self._name, self._passed_on(kwargs["env"]))
            try:
                await self._until_it_runs(gateway)
                await self._open(gateway)
            except BaseException:
                await gateway.end(self.kernel_id)
                raise
        except (Refused, OSError) as exc:
            status = getattr(exc, "status", 0)
            self.log_and_raise(http_status_code=status if 400 <= status < 500 else 500, reason=str(exc))
        return self

    def poll(self) -> int | None:
        """``None`` while the kernel lives, as far as one knows here."""
        return self._status

    def wait(self) -> int | None:
        return self._status

    def send_signal(self, signum: int) -> bool | None:
        """``False`` where 0 finds nobody, as in every process proxy."""
        if signum == 0:
            return None if self._status is None else False
        if self._status is None and self.kernel_id not in self._endings:  # Enterprise Gateway interrupts what it is ending, too
            self._begin(self._interrupt()) if signum == signal.SIGINT else self._end()
        return None

    def terminate(self) -> None:
        self._end()

    def kill(self) -> None:
        self._end()

    def cleanup(self) -> None:
        """Of what is here; the kernel is ended too, if it isn't yet."""
        if self._status is None:
            self._end()
        self._close()

    def load_process_info(self, process_info: dict[str, Any]) -> None:
        """A kernel of an Enterprise Gateway before this one, kept by its session persistence."""
        super().load_process_info(process_info)
        try:
            gateway = self._elsewhere()
            self._status = None if gateway.knows(self.kernel_id) else 1
        except Refused as exc:
            self.log.error("Kernel %s can't be had again: %s", self.kernel_id, exc)
            self._status = 1
        if self._status is None:
            self._begin(self._open_again(gateway))

    # inside

    def _elsewhere(self) -> Elsewhere:
        return elsewhere(self.proxy_config, os.environ)

    def _passed_on(self, env: dict[str, str]) -> dict[str, str]:
        """What clients may set, and nothing of Enterprise Gateway's own environment."""
        manager = self.kernel_manager
        names = {*manager.client_envs, *manager.inherited_envs, *manager.kernel_spec.env}
        return {name: str(value) for name, value in env.items() if (name.startswith("KERNEL_") or name in names) and name not in _NOT_OURS}

    async def _until_it_runs(self, gateway: Elsewhere) -> None:
        until = time.monotonic() + self.kernel_launch_timeout
        while True:
            state, reason = await gateway.state(self.kernel_id)
            if state == "dead":
                raise Refused(reason or "The kernel died as it started: see the log of the elastic gateway.")
            if state not in ("starting", "restarting"):
                return
            if time.monotonic() > until:
                told = f" It says: {reason}" if reason else ""
                raise Refused(f"The kernel has not come up within {self.kernel_launch_timeout:g} s (KERNEL_LAUNCH_TIMEOUT).{told}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _open(self, gateway: Elsewhere) -> None:
        manager = self.kernel_manager
        self._bridge = Bridge(gateway, self.kernel_id, manager.session.key, self.log, self._gone, self._end)
        await self._bridge.open(self.ip, {channel: getattr(manager, f"{channel}_port") for channel in _CHANNELS})

    async def _open_again(self, gateway: Elsewhere) -> None:
        try:
            await self._open(gateway)
        except OSError as exc:
            self.log.error("Kernel %s can't be had again: %s", self.kernel_id, exc)
            self._status = 1

    async def _interrupt(self) -> None:
        try:
            await self._elsewhere().interrupt(self.kernel_id)
        except Refused as exc:
            if exc.status != 404:  # before each end comes an interrupt
                self.log.warning("Kernel %s can't be interrupted: %s", self.kernel_id, exc)

    def _end(self) -> None:
        if self._status is None and self.kernel_id not in self._endings:
            ending = self._endings[self.kernel_id] = self._begin(self._end_it())
            ending.add_done_callback(lambda _: self._endings.pop(self.kernel_id, None))

    async def _end_it(self) -> None:
        self._close()  # first, as what ends by our own wish is no news
        if self._tasks - {asyncio.current_task()}:  # an interrupt on its way would find nobody
            await asyncio.wait(self._tasks - {asyncio.current_task()}, timeout=INTERRUPT_SECONDS)
        try:
            await self._elsewhere().end(self.kernel_id)
        except Refused as exc:
            self.log.error("Kernel %s may still run at the elastic gateway: %s", self.kernel_id, exc)
        self._status = 0

    def _gone(self) -> None:
        """The elastic gateway has it no more. Where we are ending it, it counts as ended once all of it has: its id is free then."""
        if self._status is None and self.kernel_id not in self._endings:
            self._status = 1
        self._close()

    def _close(self) -> None:
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.close_all()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_event_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
