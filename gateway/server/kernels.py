"""All kernels of this gateway: started, found again, limited, culled.

What a kernel is doing is the supervisors' word. It must never end kernels because the gateway ends, and never wait for one kernel
on behalf of another.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from jupyter_client.kernelspec import NoSuchKernel
from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets import List, Unicode, default

from ..broker.news import KERNEL
from ..protocol.errors import ElasticError, SupervisorLost
from ..protocol.websocket import CLOSE_KERNEL_GONE, CLOSE_RESTART
from ..settings import Count, Seconds
from .allowance import may_start
from .answers import for_stock, no_such_kernel
from .culling import Fate, decide, interval, long
from .kernel import UNKNOWN, ElasticKernelManager

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.link import KernelLink
    from ..protocol.model import Spec


class ElasticMappingKernelManager(AsyncMappingKernelManager):
    """The kernels of one gateway. ``elastic_broker`` is set by the application before anything is started."""

    allowed_envs = List(
        Unicode(),
        help="""Names of environment variables that a client may set in its kernel, besides KERNEL_*. []: none, the default. Others that
        a client sends are left out.""",
    ).tag(config=True)

    max_kernels = Count(
        None,
        allow_none=True,
        help="How many kernels may exist at a time, those that start included. None, the default: no limit. 0: none may start.",
    ).tag(config=True)

    max_kernels_per_user = Count(
        None,
        allow_none=True,
        help="""How many kernels of one KERNEL_USERNAME may exist at a time, those that start included. None, the default: no limit. 0:
        none may start.""",
    ).tag(config=True)

    allowed_users = List(
        Unicode(),
        help="""Names of the users (KERNEL_USERNAME) who may start kernels. []: everybody whom the gateway lets in, the default. A
        kernelspec may have a list of its own (`metadata.allowed_users`), which counts for its kernels in place of this one.""",
    ).tag(config=True)

    denied_users = List(
        Unicode(),
        help="""Names of users (KERNEL_USERNAME) who may not start kernels, allowed or not. []: none, the default. A kernelspec's own
        (`metadata.denied_users`) come on top.""",
    ).tag(config=True)

    cull_warning = Seconds(
        300.0,
        allow_none=True,
        help="""How long before an idle kernel is ended (cull_idle_timeout) its notebook says so, below the cell that ran last, in seconds;
        at most half of that timeout. 300, the default, is time to come back from the next room. Who runs a cell keeps the kernel. None or
        0: kernels end unannounced.""",
    ).tag(config=True)

    elastic_broker: Broker | None = None
    session_envs = frozenset({"JPY_SESSION_NAME"})  # the notebook's path, which those who wait for its GPU are shown
    kernel_manager_class: Any
    _kernels: dict[str, ElasticKernelManager]
    _starts: dict[str, asyncio.Task[None]]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._starts = {}
        self.start_counts: Counter[tuple[str, str]] = Counter()  # by kernelspec and result
        self._ends: set[asyncio.Task[None]] = set()  # of kernels whose end an earlier gateway had begun, or that are looked at again
        self._ending: Counter[str] = Counter()  # ids of kernels that are being ended, which nobody finds again
        self.broker_is_up = asyncio.Event()
        self.broker_is_up.set()

    @default("kernel_manager_class")
    def _ours(self) -> str:
        return "gateway.server.kernel.ElasticKernelManager"

    @default("cull_interval")
    def _often_enough(self) -> int:
        return interval(self.cull_idle_timeout, self.cull_warning or 0.0)

    @default("use_pending_kernels")
    def _always_pending(self) -> bool:
        return True

    @property
    def client_envs(self) -> frozenset[str]:
        """Variables that a client may set besides ``KERNEL_*``."""
        return self.session_envs.union(self.allowed_envs)

    def tell(self, kernel: ElasticKernelManager, action: str, **fields: Any) -> None:
        """Whoever follows this gateway's news."""
        if self.elastic_broker is not None:
            who = {"kernel_id": kernel.kernel_id, "user": kernel.user, "kernelspec": kernel.kernel_name}
            self.elastic_broker.news.tell(KERNEL, action, **who, **fields)

    def user_of(self, kernel_id: str) -> str:
        """Whose kernel it is; "" for one that isn't here."""
        kernel = self._kernels.get(kernel_id)
        return "" if kernel is None else kernel.user

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """With ``ends_at`` where it is about to be culled."""
        model: dict[str, Any] = super().kernel_model(kernel_id)
        ends_in = self._kernels[kernel_id].ends_in
        return model if ends_in is None else {**model, "ends_at": moment(ends_in)}

    # starting

    async def start_kernel(  # type: ignore[override]
        self,
        *,
        kernel_id: str | None = None,
        kernel_name: str | None = None,
        path: str | None = None,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Begin to start a kernel and return its id at once; ``execution_state`` and ``reason`` tell what becomes of it.

        ``env``: variables of this request alone. Raises ``ElasticError`` for a kernelspec that isn't there and at a limit.
        """
        if kernel_id is not None and kernel_id in self:
            self.log.info("Using existing kernel: %s", kernel_id)
            return kernel_id
        if env is None:
            env = {} if self._survive else dict(os.environ)  # a user's own server: its kernels inherit, as everywhere
        user = env.get("KERNEL_USERNAME", "")
        try:
            self._check_spec(kernel_name or self.default_kernel_name, user)
            self._check_limits(user)
        except ElasticError as exc:
            if self._survive or self.elastic_broker is None:
                raise
            raise for_stock(exc) from None  # a user's own server asks with jupyter_server's handlers
        fixed = {"kernel_id": kernel_id} if kernel_id is not None else {}
        return self._begin(kernel_name, fixed, user, env=env, cwd=self._folder(path, env), **kwargs)

    def go_on(self, spec: Spec) -> None:
        """A kernel that the gateway before us had begun to start, under its old id."""
        cwd = str(spec.metadata.get("launch", {}).get("cwd") or spec.cwd)
        self._begin(spec.name or None, {"kernel_id": spec.kernel_id}, spec.env.get("KERNEL_USERNAME", ""), env=spec.env, cwd=cwd)

    def _begin(self, name: str | None, fixed: dict[str, str], user: str, **kwargs: Any) -> str:
        kernel, _, kernel_id = self.pre_start_kernel(name, fixed)
        kernel.kernel_id, kernel.user = kernel_id, user
        if self.transport_encryption != "disabled":
            kernel.transport_encryption = self.transport_encryption
        self._add(kernel)
        self._starts[kernel_id] = asyncio.create_task(self._start(kernel, **kwargs))
        self.log.info("Kernel %s starts (%s).", kernel_id, kernel.kernel_name)
        return kernel_id

    async def _start(self, kernel: ElasticKernelManager, **kwargs: Any) -> None:
        try:
            await self.broker_is_up.wait()
            began = time.monotonic()
            await kernel.start_kernel(kernel_id=kernel.kernel_id, **kwargs)
            self.start_counts[kernel.kernel_name, "ok"] += 1
            self.tell(kernel, "started", seconds=round(time.monotonic() - began, 3))
        except ElasticError as exc:
            self.start_counts[kernel.kernel_name, "failed"] += 1
            self.tell(kernel, "failed", message=str(exc))
        except Exception as exc:
            self.start_counts[kernel.kernel_name, "failed"] += 1  # the kernel has logged it and tells its browsers
            self.tell(kernel, "failed", message=str(exc) or type(exc).__name__)
        finally:
            self._starts.pop(kernel.kernel_id, None)

    async def templates(self) -> list[Spec]:
        """What a kernel of each kernelspec is started with before anybody has asked for one."""
        kernels = [self.pre_start_kernel(name, {})[0] for name in sorted(self.kernel_spec_manager.find_kernel_specs())]  # type: ignore[union-attr]
        return [await kernel.template() for kernel in kernels]

    def adopt(self, link: KernelLink) -> None:
        """Take over a running kernel under its old id, as it is; one that doesn't answer yet is here, too, so that its notebook stays."""
        kernel, _, kernel_id = self.pre_start_kernel(link.supervisor.name or None, {"kernel_id": link.kernel_id})
        kernel.kernel_id = kernel_id
        try:
            self._add(kernel)
            kernel.adopt(link)
        except Exception:
            self._forget(kernel_id)
            raise
        self.log.info("Found kernel %s again (%s, %s).", kernel_id, kernel.kernel_name, kernel.execution_state)

    def misses(self, kernel_id: str) -> bool:
        """It isn't here and is not being ended, or is here only as one that was given up without ever having been reached."""
        if kernel_id in self._ending:
            return False
        kernel = self._kernels.get(kernel_id)
        if kernel is not None and kernel.dead and kernel.link is None and kernel_id not in self._starts:
            kernel.close_websockets(CLOSE_RESTART, "the kernel was found again; come back")
            self._forget(kernel_id)
            return True
        return kernel is None

    # ending

    def lose(self, kernel_id: str, why: str) -> None:
        """It ended before this gateway ever heard of it: as if it had never been found."""
        kernel = self._forget(kernel_id)
        kernel.close_websockets(CLOSE_KERNEL_GONE, why, dead=True)
        kernel.cleanup_connection_file()
        self.tell(kernel, "ended", message=why)

    def finish_end(self, kernel_id: str) -> None:
        """An earlier gateway had begun to end it."""
        task = asyncio.create_task(self.shutdown_kernel(kernel_id, now=True))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def shutdown_kernel(self, kernel_id: str, now: bool = False, restart: bool = False) -> None:  # type: ignore[override]
        """Gone for everybody at once; returns when process and supervisor have ended. A start is cancelled."""
        self._check_kernel_id(kernel_id)
        kernel = self._forget(kernel_id)
        if self._survive and self.elastic_broker is not None:
            self.elastic_broker.backend.end_begins(kernel_id)
        self._ending[kernel_id] += 1
        try:
            start = self._starts.pop(kernel_id, None)
            if start is not None:
                start.cancel()
                await asyncio.wait({start})
            await kernel.shutdown_kernel(now=now)
        finally:
            self._ending -= Counter((kernel_id,))
        self.last_kernel_activity = utcnow()
        self.tell(kernel, "culled" if kernel.culled else "ended", message=kernel.farewell)

    async def end_all(self, now: bool = False) -> None:
        """End every kernel. One that can't be ended keeps none of the others."""
        results = await asyncio.gather(*(self.shutdown_kernel(kid, now) for kid in self.list_kernel_ids()), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                self.log.error("A kernel could not be ended: %s", result)
        if self.elastic_broker is not None:
            await self.elastic_broker.backend.end_warm()

    async def shutdown_all(self, now: bool = False) -> None:  # type: ignore[override]
        """What jupyter_server calls as a user's own server stops; a gateway detaches instead."""
        await self.end_all(now)
        if self.elastic_broker is not None:
            await self.elastic_broker.stop()

    def detach_all(self) -> None:
        """The gateway stops and its kernels go on: tell the browsers to come back."""
        for kernel in self._kernels.values():
            kernel.close_websockets(CLOSE_RESTART, "the gateway stops; come back")
            kernel.detach()

    # acting on one

    async def interrupt_kernel(self, kernel_id: str) -> None:  # type: ignore[override]
        self._check_kernel_id(kernel_id)
        await self._kernels[kernel_id].interrupt_kernel()

    async def restart_kernel(self, kernel_id: str, now: bool = False) -> None:  # type: ignore[override]
        """Returns when the new process answers, or raises why it does not."""
        self._check_kernel_id(kernel_id)
        await self._kernels[kernel_id].reach()
        self._check_kernel_id(kernel_id)
        kernel = self._kernels[kernel_id]
        if kernel.pending:
            raise ElasticError("The kernel is being started or restarted already; wait until it is done.", reason="pending")
        if kernel.link is not None and not kernel.link.connected:
            raise SupervisorLost("The kernel's supervisor doesn't answer just now: try again, or delete the kernel.")
        await kernel.restart_kernel(now=now)

    # culling

    async def cull_kernels(self) -> None:
        """All at once: one that is slow to end keeps none of the others."""
        results = await asyncio.gather(*map(self.cull_kernel_if_idle, list(self._kernels)), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                self.log.error("A kernel could not be culled: %s", result)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        kernel = self._kernels.get(kernel_id)
        if kernel is None or kernel.pending:
            return
        timeout = (kernel.kernel_spec.metadata or {}).get("cull_idle_timeout", self.cull_idle_timeout)  # 0 there: never
        busy = kernel.working or kernel.execution_state in ("busy", "starting", "restarting", UNKNOWN)
        connections, idle = self._kernel_connections.get(kernel_id, 0), kernel.idle_for
        spared = kernel.kept or (busy and not self.cull_busy) or bool(connections and not self.cull_connected)
        decision = decide(idle, timeout, self.cull_warning or 0.0, kernel.ends_in, spared)
        if decision.fate is Fate.WARN:
            kernel.ends_at = time.monotonic() + decision.ends_in
            at = moment(decision.ends_in)
            text = (
                f"This kernel has done nothing for {long(idle)} and will be ended in {long(decision.ends_in)}, at {at[11:16]} UTC, with its"
                " variables. Run a cell to keep it."
            )
            self.tell(kernel, "cull_warned", ends_at=at, message=text)
            await kernel.notify(text, last=False)
        elif decision.fate is Fate.AVERT:
            kernel.ends_at = None
            self.tell(kernel, "cull_averted")
            await kernel.notify("This kernel was about to be ended for having done nothing, and goes on.", last=True)
        elif decision.fate is Fate.CULL:
            kernel.farewell = f"the kernel was culled after {idle:.0f} s without work (cull_idle_timeout)"
            kernel.culled = True
            self.log.warning("Culling kernel %s: %s for %d s, %d connections.", kernel_id, kernel.execution_state, idle, connections)
            await kernel.notify(f"This kernel was ended after {long(idle)} without work: restart it to go on.", last=True)
            if kernel_id in self and (self.cull_busy or not kernel.working):  # a cell that has come meanwhile keeps it
                await self.shutdown_kernel(kernel_id)

    def look_again(self, kernel_id: str) -> None:
        """One that was to end works again, and its notebook is told at once."""
        task = asyncio.create_task(self.cull_kernel_if_idle(kernel_id))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    # what jupyter_server does with sockets of its own

    def start_watching_activity(self, kernel_id: str) -> None:
        pass

    def stop_watching_activity(self, kernel_id: str) -> None:
        pass

    # inside

    @property
    def _survive(self) -> bool:
        """These are a gateway's kernels: they outlive this process."""
        return self.elastic_broker is not None and bool(self.elastic_broker.owner)

    def _add(self, kernel: ElasticKernelManager) -> None:
        self._kernels[kernel.kernel_id] = kernel
        self._kernel_connections[kernel.kernel_id] = 0
        if not self._initialized_culler:
            self.initialize_culler()

    def _forget(self, kernel_id: str) -> ElasticKernelManager:
        self._kernel_connections.pop(kernel_id, None)
        return self._kernels.pop(kernel_id)

    def _check_kernel_id(self, kernel_id: str) -> None:
        if kernel_id not in self:
            raise no_such_kernel()

    def may_start(self, user: str, spec: dict[str, Any]) -> bool:
        """Whether this user may start kernels of a kernelspec, as the API has it. Limits come on top."""
        return may_start(user, spec.get("metadata"), self.allowed_users, self.denied_users)

    def _check_spec(self, name: str, user: str) -> None:
        try:
            spec = self.kernel_spec_manager.get_kernel_spec(name)  # type: ignore[union-attr]
        except (NoSuchKernel, KeyError):
            known = ", ".join(sorted(self.kernel_spec_manager.find_kernel_specs())[:20])  # type: ignore[union-attr]
            raise ElasticError(f"There is no kernel named {name!r} here. There are: {known}.", reason="no_such_kernelspec") from None
        if not self.may_start(user, spec.to_dict()):
            raise ElasticError(
                f"{user or 'Nobody by name'} may start no kernel {name!r} (allowed_users, denied_users): ask whoever runs this gateway.",
                reason="forbidden",
            )

    def _check_limits(self, user: str) -> None:
        if self.max_kernels is not None and len(self._kernels) >= self.max_kernels:
            raise ElasticError(
                f"This gateway has its {self.max_kernels} kernels already (max_kernels, those that start included): end one first.",
                reason="kernel_limit",
            )
        if self.max_kernels_per_user is not None:
            theirs = Counter(kernel.user for kernel in self._kernels.values())[user]
            if theirs >= self.max_kernels_per_user:
                raise ElasticError(
                    f"{user or 'Nobody by name'} has {theirs} kernels already, and max_kernels_per_user is {self.max_kernels_per_user}:"
                    " end one first.",
                    reason="kernel_limit",
                )

    def _folder(self, path: str | None, env: dict[str, str]) -> str:
        """The working folder: what the client's own server says, if it exists here, else the notebook's below our root."""
        wanted = env.get("KERNEL_WORKING_DIR", "")
        if os.path.isabs(wanted) and os.path.isdir(wanted):
            return wanted
        return self.cwd_for_path(path or "", env=env)


def moment(seconds: float) -> str:
    """So many from now, in UTC."""
    return (utcnow() + timedelta(seconds=seconds)).isoformat(timespec="seconds").replace("+00:00", "Z")
