"""One kernel, as jupyter_server knows it, on the line to its supervisor.

No ZMQ socket of its own: what it knows the supervisor has told it, what it wants it asks the supervisor. It must never end a
kernel that nobody asked to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.ioloop.restarter import AsyncIOLoopKernelRestarter
from jupyter_client.kernelspec import KernelSpec, NoSuchKernel
from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager, emit_kernel_action_event
from traitlets import Type, default

from ..protocol.errors import ElasticError, KernelDied, LaunchError, LaunchTimeout, SupervisorLost, cause
from ..protocol.model import KernelState, Spec
from ..protocol.websocket import CLOSE_KERNEL_GONE
from ..protocol.wire import Part
from ..provisioner import ElasticProvisioner
from . import ending
from .early import Early
from .messages import status
from .restarter import ElasticRestarter

if TYPE_CHECKING:
    from ..broker.link import KernelLink
    from .connection import ElasticWebsocketConnection

NOTED = timedelta(seconds=1)  # between two notes of a kernel's last activity: one costs more than all else that a state brings
UNKNOWN = "unknown"  # execution state of one that was found and hasn't answered yet


class ElasticKernelManager(ServerKernelManager):
    """Starts, ends, restarts and interrupts one kernel, and tells its browsers what becomes of it."""

    restarter_class = Type(
        default_value=ElasticRestarter, klass=AsyncIOLoopKernelRestarter, help="Decides whether a kernel that died is started again."
    ).tag(config=True)

    provisioner: ElasticProvisioner | None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.websockets: set[ElasticWebsocketConnection] = set()
        self._unsettled: set[ElasticWebsocketConnection] = set()  # those that were told of a state other than idle as they came
        self.user = ""
        self._waits_for = ""  # what keeps it from starting, or from answering
        self.coming = True  # no line yet, but one is on its way
        self.dead = False  # given up: who sends something is told why at once
        self.obituary = ("KernelDied", "The kernel has not been started.")
        self.link: KernelLink | None = None
        self._state = KernelState()
        self._session = ""
        self.farewell, self.culled = "the kernel was shut down", False
        self.ends_at: float | None = None  # on the monotonic clock: when it is culled, as its notebook was told
        self._active_at = self._kept_until = time.monotonic()  # last, and by its user's `%gpu hold`; the machine's own clock may jump
        self._early = Early()  # of browsers that have left
        self._deaf: list[Callable[[], None]] = []  # what ends our listening to the link
        self._worked = False  # the process that runs now (or ran last) has answered once
        self._resumed: asyncio.Task[None] | None = None  # a restart that the gateway before us had begun
        self._learning: asyncio.Task[None] | None = None  # what one that was found was started with
        self._found = True  # it was started here, or has answered since it was taken over

    @property
    def kernel_spec(self) -> KernelSpec:
        """Of a kernel found again whose kernelspec has been removed: an empty one, as its supervisor knows how to start it."""
        try:
            return super().kernel_spec  # type: ignore[return-value]
        except NoSuchKernel:
            return KernelSpec(display_name=self.kernel_name)

    @default("execution_state")
    def _starting(self) -> str:
        return "starting"

    @default("last_activity")
    def _now(self) -> Any:
        return utcnow()

    # what the mapping kernel manager asks

    @property
    def spoken(self) -> str:
        """The kernel's own session id, "" while it isn't known."""
        return self._session

    @property
    def pending(self) -> bool:
        """It is being started, restarted or ended."""
        return not self.ready.done()

    @property
    def working(self) -> bool:
        """Something runs or waits in it, so it isn't idle whatever the clock says."""
        state = self._state
        return self.link is not None and state.alive and bool(state.in_flight or state.held or state.lease.executing)

    @property
    def idle_for(self) -> float:
        """Seconds for which it has done nothing."""
        return time.monotonic() - self._active_at

    @property
    def kept(self) -> bool:
        """Its user's `%gpu hold` lasts."""
        return time.monotonic() < self._kept_until

    @property
    def ends_in(self) -> float | None:
        """Seconds until it is culled, as its notebook was told; None: it isn't."""
        return None if self.ends_at is None else self.ends_at - time.monotonic()

    async def notify(self, text: str, last: bool) -> None:
        """A line below the cell that ran last, in place of the one before; ``last``: the next will be another."""
        if self.link is not None and self.link.connected and self._state.alive:
            with contextlib.suppress(ElasticError):  # an older supervisor, or one that has just ended
                await self.link.call("notice", text=text, last=last)

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was started.")
    async def start_kernel(self, **kwargs: Any) -> None:
        """Returns once the kernel answers; browsers are connected long before. Raises ``LaunchError`` and its like; then nothing is left
        of it but its reason."""
        self._attempted_start = True
        try:
            async with self._one_at_a_time():
                await self._launch(**kwargs)
        except BaseException as exc:
            self._lose_link()
            self._give_up(exc)
            if self.provisioner is not None:
                await self.provisioner.cleanup(restart=False)
            raise

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was restarted.")
    async def restart_kernel(self, now: bool = False, newports: bool = False, **kwargs: Any) -> None:
        """A new process under the same supervisor, or a new supervisor where that one is gone. Browsers stay connected. Returns once
        the kernel answers."""
        self.coming, self.dead = self.link is None, False
        if not now:  # a user's own restart: why an earlier process ended is history
            self.reason = ""
        try:
            async with self._one_at_a_time():
                await self._end_process(self.shutdown_wait_time if not now else 0.0, restart=True)
                await self._launch(**{**(self._launch_args or {}), **kwargs})
        except BaseException as exc:
            self._give_up(exc)
            self.parent.tell(self, "died", message=self.reason)
            raise
        self.parent.tell(self, "restarted")

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was shutdown.")
    async def shutdown_kernel(self, now: bool = False, restart: bool = False) -> None:
        """End process and supervisor. Its browsers are told at once, ``farewell``."""
        self.shutting_down = True
        if self._restarter is not None:
            self._restarter.cancel()
        self.close_websockets(CLOSE_KERNEL_GONE, self.farewell, dead=True)
        if self._resumed is not None:
            self._resumed.cancel()
        if self.provisioner is not None:
            try:
                grace = 0.0 if now else self.shutdown_wait_time
                if self.link is not None and self.link.connected:
                    await ending.tell_end(self.link, grace)
                await self._end_process(grace, restart=False)
            except ElasticError as exc:
                self.log.warning("Kernel %s could not be asked to end, and is ended all the same: %s", self.kernel_id, exc)
            finally:
                await self.provisioner.cleanup(restart=False)
        self._lose_link()
        self.execution_state, self.coming = "dead", False
        self.cleanup_connection_file()

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was interrupted.")
    async def interrupt_kernel(self) -> None:
        """Ends the cell that runs, and those that wait for a GPU or for the kernel itself."""
        if self.link is None:
            for websocket in list(self.websockets):
                websocket.cancel_early("KeyboardInterrupt", "Interrupted while the kernel was starting.")
            return
        await self.link.call("signal", signum=ending.SIGINT)

    async def reach(self) -> None:
        """Raises ``SupervisorLost`` where a kernel process runs that nothing can be asked of: it stays as it is."""
        if self.has_kernel and not self.pending:
            await self.signal_kernel(0)

    async def signal_kernel(self, signum: int) -> None:
        if self.link is None:
            raise SupervisorLost("There is no kernel process to signal: restart the kernel.")
        await self.link.call("signal", signum=int(signum))

    async def is_alive(self) -> bool:
        return self.link is not None and self.link.connected and self._state.alive

    def adopt(self, link: KernelLink) -> None:
        """Take over a running supervisor as it is, instead of ``start_kernel``; where it doesn't answer yet, once it does."""
        supervisor = link.supervisor
        self._attempted_start = True
        self.user = supervisor.whose_name
        self._launch_args = dict(supervisor.metadata.get("launch") or {})
        self.provisioner = self._new_provisioner()
        self.provisioner.adopt(link)
        self.load_connection_info({**supervisor.connection, "key": supervisor.key})  # type: ignore[typeddict-item]
        self.write_connection_file()
        self.execution_state, self._found = UNKNOWN, False
        self.waits(link.silence)
        self.ready.set_result(None)
        self.start_restarter()
        self._use_link(link)

    async def template(self) -> Spec:
        """What it would be started with, had nobody asked for it."""
        return await self._new_provisioner().template()

    def waits(self, why: str) -> None:
        """What keeps it from starting, or from answering; "" where nothing does any more."""
        if why or self.reason == self._waits_for:
            self.reason = why
        self._waits_for = why
        for websocket in list(self.websockets):
            websocket.explain(why)

    def detach(self) -> None:
        """The gateway stops, the kernel does not."""
        self.stop_restarter()
        self._lose_link()
        self._connection_file_written = False  # so that it stays: consoles use it

    # what its browsers say

    def joined(self, websocket: ElasticWebsocketConnection) -> None:
        self.websockets.add(websocket)
        self.parent.notify_connect(self.kernel_id)
        if self.ends_at is not None:
            self.parent.look_again(self.kernel_id)
        if self.link is not None and self.link.connected:
            websocket.attach(self.link)
            if self.dead:
                websocket.say(status("dead"))
        elif self.dead:
            websocket.fail(*self.obituary)
        else:
            websocket.wait()
            websocket.explain(self._waits_for)

    def greet(self, websocket: ElasticWebsocketConnection) -> None:
        """Its line is there. JupyterLab shows "unknown" after each connection until it hears of a state, and looks away from those that
        follow from its own first requests; so it is told the state, and where that isn't idle, also when it becomes so."""
        state = self._state.execution_state
        if state in ("starting", "idle", "busy"):
            websocket.say(status(state))
        if state != "idle":
            self._unsettled.add(websocket)

    def left(self, websocket: ElasticWebsocketConnection) -> None:
        if websocket in self.websockets:
            self.websockets.discard(websocket)
            self._unsettled.discard(websocket)
            self.parent.notify_disconnect(self.kernel_id)

    def keep(self, session: str, early: list[tuple[str, list[Part], int | None]], forget: bool) -> None:
        """What a browser that has left sent before the kernel was up: its cells run all the same. ``forget``: it won't come back."""
        if not self.dead:
            self._early.keep(session, early, forget)

    def close_websockets(self, code: int, reason: str, dead: bool = False) -> None:
        for websocket in list(self.websockets):
            websocket.end(code, reason, dead)

    # jupyter_client's hooks, which would open sockets

    def _connect_control_socket(self) -> None:
        pass

    def start_restarter(self) -> None:
        if self.autorestart:
            if self._restarter is None:
                self._restarter = self.restarter_class(kernel_manager=self, loop=self.loop, parent=self, log=self.log)
            self._restarter.start()

    def resolve_path(self, path: str) -> str | None:
        """Where a path in some output leads; None also while the kernel is being started."""
        return None if self.provisioner is None else self.provisioner.resolve_path(path)

    @property
    def has_kernel(self) -> bool:
        return self.link is not None and self._state.alive

    # inside: starting and ending

    @contextlib.asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        """While inside, ``ready`` is pending; a failure becomes its exception."""
        if self._ready is not None and self._ready.done():
            self._ready = None
        ready = self.ready
        self.shutting_down = True  # a death in between is no surprise
        self.stop_restarter()
        try:
            yield
        except BaseException as exc:
            if not ready.done():
                ready.set_exception(exc if isinstance(exc, Exception) else LaunchError("The start was cancelled."))
                ready.exception()  # marks it as seen: it is told elsewhere
            raise
        self.shutting_down = False
        self.start_restarter()
        if not ready.done():
            ready.set_result(None)
        if not self._state.alive:  # it died before anybody watched
            self._died()

    async def _launch(self, **kwargs: Any) -> None:
        if self.provisioner is None:
            self.provisioner = self._new_provisioner()
        self._launch_args, self._waits_for = kwargs.copy(), ""
        try:
            kwargs = await self.provisioner.pre_launch(**kwargs)  # writes the connection file, for consoles
        except OSError as exc:
            raise LaunchError(f"The kernel could not be started: {cause(exc, Path(self.connection_file))}.") from exc
        seconds, setting = self.provisioner.launch_limit
        try:
            async with asyncio.timeout(seconds):
                await self._launch_until_it_answers(**kwargs)
        except TimeoutError:  # which is an OSError too
            raise LaunchTimeout(f"The kernel has not answered within its launch timeout of {seconds:g} seconds ({setting}).") from None

    async def _launch_until_it_answers(self, cmd: list[str], **kwargs: Any) -> None:
        assert self.provisioner is not None
        starts, self._worked = self._state.starts, False
        info = await self.provisioner.launch_kernel(cmd, **kwargs)
        self._reconcile_connection_info(info)
        await self.provisioner.post_launch(**kwargs)
        link = self.parent.elastic_broker.links.get(self.kernel_id)
        if link is None:
            raise SupervisorLost("The kernel's supervisor has ended as it came up.")
        if link is not self.link:
            self._use_link(link)
        else:  # the answer to a respawn comes before the state that follows from it
            await link.until(lambda state: state.starts > starts)
        state = await link.until(lambda state: state.ready or not state.alive)
        if not state.ready:
            raise LaunchError(f"The kernel died as it came up. {state.reason}")

    def _new_provisioner(self) -> ElasticProvisioner:
        """Every kernel here has a supervisor, whatever its kernelspec names: only so does it survive and share GPUs."""
        stanza = (self.kernel_spec.metadata or {}).get("kernel_provisioner") or {}
        config = stanza.get("config") or {} if stanza.get("provisioner_name") == "elastic-provisioner" else {}
        return ElasticProvisioner(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self, **config)

    async def _end_process(self, grace: float, restart: bool) -> None:
        if self.link is not None and self._state.alive:
            await ending.end_process(self.link, self.working, grace, restart)

    # inside: the line

    def _use_link(self, link: KernelLink) -> None:
        self._lose_link()
        self.link, self.coming = link, False
        self._deaf = [link.on_state(self._on_state), link.on_lost(self._on_lost), link.on_silent(lambda _, why: self.waits(why))]
        if link.dials:
            self._on_state(link, link.state)

    def _lose_link(self) -> None:
        for end in self._deaf:
            end()
        self.link, self._deaf = None, []

    def _on_state(self, link: KernelLink, state: KernelState) -> None:
        before, self._state = self._state, state
        if link.connected:
            self._early.send(link)
        self._session = state.session or self._session
        for websocket in list(self.websockets):
            if websocket.link is None:  # the line is new, or was broken and is mended
                websocket.attach(link)
        self._worked = self._worked or state.ready
        if self.execution_state != state.execution_state:
            self.execution_state = state.execution_state
        if state.execution_state == "idle":
            unsettled, self._unsettled = self._unsettled, set()
            for websocket in unsettled & self.websockets:
                websocket.say(status("idle"))
        active = utcnow() - timedelta(seconds=state.idle_seconds)
        if abs(active - self.last_activity) > NOTED:
            self.last_activity = active
            self.parent.last_kernel_activity = max(self.parent.last_kernel_activity, active)
        now = time.monotonic()
        self._active_at, self._kept_until = now - state.idle_seconds, now + state.lease.hold_for
        if state.reason and not state.alive and not self.shutting_down:  # an end that was asked for needs no reason
            self.reason = state.reason
        if self.ends_at is not None and (self.working or self.kept):
            self.parent.look_again(self.kernel_id)
        if not self._found:
            self._take_over(state)
        elif before.alive and not state.alive and not self.shutting_down:
            self._died()

    def _take_over(self, state: KernelState) -> None:
        """The first word of a kernel that was there before this gateway."""
        self._found, self._worked = True, state.ready
        self.waits("")
        assert self.link is not None
        if state.ending or self.link.supervisor.ending:  # the gateway before us was killed in the middle of that, or of a restart
            self.parent.finish_end(self.kernel_id)
        elif state.execution_state == "restarting":
            self._resumed = asyncio.create_task(self._finish_restart())
        elif not state.alive:
            self._give_up(KernelDied(state.reason or "The kernel process has ended."))
        assert self.provisioner is not None
        self._learning = asyncio.create_task(self.provisioner.learn())

    async def _finish_restart(self) -> None:
        try:
            await self.restart_kernel()
        except ElasticError as exc:  # its browsers have been told
            self.log.error("Kernel %s could not be restarted: %s", self.kernel_id, exc)

    def _on_lost(self, link: KernelLink, reason: str) -> None:
        """The supervisor is gone, and its kernel with it."""
        self._lose_link()
        self._state = KernelState(kernel_id=self.kernel_id, execution_state="dead", reason=reason)
        if not self._found:
            self.parent.lose(self.kernel_id, reason)
        elif not self.shutting_down:
            self._give_up(SupervisorLost(reason))
            self.parent.tell(self, "died", message=self.reason)

    def _died(self) -> None:
        """The process has ended unasked; the supervisor has closed its cells with the reason, and says so when it starts another."""
        if self._restarter is None or not self._restarter.died(self._worked):
            self._give_up(KernelDied(self._state.reason))
            self.parent.tell(self, "died", message=self.reason)

    def _give_up(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            error = LaunchError("The start was cancelled.")
        self.reason = str(error) or type(error).__name__
        self.execution_state, self.coming, self.dead = "dead", False, True
        self.obituary = (type(error).__name__, self.reason)
        if not isinstance(error, ElasticError):
            self.log.error("Kernel %s: %s", self.kernel_id, self.reason, exc_info=error)
        for websocket in list(self.websockets):
            websocket.fail(*self.obituary)
