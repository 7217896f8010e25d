"""The line to one supervisor: a ZMQ DEALER on the event loop, for one owner, broker or gateway.

It carries messages and keeps the newest state; it must never decide anything, nor block, nor wait inside a callback. All of it
runs on one event loop; ``state`` and ``connected`` may be read from any thread.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from ..backends.base import Supervisor
from ..protocol import multipart, wire
from ..protocol.errors import SupervisorLost, VersionError, WireError
from ..protocol.model import KernelState
from ..protocol.wire import Part
from .refusals import answered_error
from .subscriber import Subscriber

log = logging.getLogger(__name__)

PING_SECONDS = 5.0  # a supervisor takes a dialer for gone after 20 seconds without a word
SILENT_PINGS = 6  # unanswered, in a row, after which the line counts as broken
TOLD_PINGS = 3  # unanswered, in a row, after which a supervisor that lives is said not to answer
SILENCE_SECONDS = TOLD_PINGS * PING_SECONDS  # the same, where the line is broken
MOST_PAUSE = 5.0  # seconds between two tries to dial it
KEEPALIVE = (10, 5, 4)  # seconds without traffic before the system looks whether the other machine is there, between looks, and looks
UNHEARD = 30.0  # seconds without a sign of the other machine after which a connection counts as broken
# What says that a connection is no more, or was none.
_ENDINGS = (
    zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)  # fmt: skip
NEXT_STEP = "Try again in a while, or delete the kernel and start another."
BATCH = 64  # messages taken before others on the loop have their turn


class KernelLink:
    """Dials ``supervisor``. A line that breaks while the supervisor lives is dialled again; subscribers are cut, and come back."""

    def __init__(self, supervisor: Supervisor, context: zmq.Context[Any] | None = None) -> None:
        self.supervisor = supervisor
        self.kernel_id = supervisor.kernel_id
        self.state = KernelState(kernel_id=supervisor.kernel_id)
        self.connected = False
        self.version = 0
        self.dials = 0  # how often it was answered: more than once means that orders may have been lost
        self.silence = ""  # why it has not answered for long, "" while it does
        self.gone = ""  # why the supervisor is lost, "" while it isn't
        self._context = context or zmq.Context.instance()
        self._roles: list[str] = []
        self._generation = 0
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._reading = False
        self._welcome: asyncio.Future[KernelState] | None = None
        self._redialling: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._silent = 0
        self._heard = 0  # messages
        self._unanswered = False  # a call, and nothing has been heard since
        self._ids = itertools.count(1)
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._subscribers: dict[str, Subscriber] = {}
        self._on_state: list[Callable[[KernelLink, KernelState], None]] = []
        self._on_lost: list[Callable[[KernelLink, str], None]] = []
        self._on_silent: list[Callable[[KernelLink, str], None]] = []
        self._on_refused: list[Callable[[KernelLink, dict[str, Any]], None]] = []
        self.on_ask: Callable[[KernelLink, int, dict[str, Any]], None] | None = None  # told of each question of the kernel
        self._changed: list[asyncio.Future[None]] = []

    # the line itself

    async def open(self, roles: Sequence[str], generation: int = 0, timeout: float = 10.0) -> KernelState:
        """Dial; returns the supervisor's state. Raises ``SupervisorLost`` where nobody answers, ``VersionError``."""
        self._loop = asyncio.get_running_loop()
        self._roles, self._generation = list(roles), generation
        try:
            await self._dial(timeout)
        except BaseException:
            self._hang_up()
            raise
        self._ticker = self._loop.call_later(PING_SECONDS, self._tick)
        return self.state

    def keep_dialling(self) -> None:
        """Nobody answered ``open``, and the supervisor lives: ``on_state`` tells when it answers, ``on_lost`` when it has ended."""
        self.silence = self.supervisor.trouble() or self.supervisor.silence
        self._ticker = self._loop.call_later(PING_SECONDS, self._tick)
        self._dial_again()

    def close(self) -> None:
        """Hang up for good. The supervisor and its kernel go on; no callback comes any more."""
        self._on_state.clear()
        self._on_lost.clear()
        subscribers, self._subscribers = self._subscribers, {}
        for subscriber in subscribers.values():
            _guard(subscriber.cut, "line_broken")
        if not self.gone:
            self._finish("this side has hung up")

    def on_state(self, callback: Callable[[KernelLink, KernelState], None]) -> Callable[[], None]:
        """Call ``callback(link, state)`` on each new state; returns what ends that."""
        return _add(self._on_state, callback)

    def on_lost(self, callback: Callable[[KernelLink, str], None]) -> Callable[[], None]:
        """Call ``callback(link, reason)`` once, when the supervisor is gone for good; returns what ends that."""
        return _add(self._on_lost, callback)

    def on_silent(self, callback: Callable[[KernelLink, str], None]) -> Callable[[], None]:
        """Call ``callback(link, why)`` when it is known why the supervisor does not answer, and with "" when it does again; returns what
        ends that."""
        return _add(self._on_silent, callback)

    def on_refused(self, callback: Callable[[KernelLink, dict[str, Any]], None]) -> Callable[[], None]:
        """Call ``callback(link, {"message", "reason"})`` for each refusal, such as a stale order; returns what ends that."""
        return _add(self._on_refused, callback)

    async def until(self, wanted: Callable[[KernelState], bool]) -> KernelState:
        """The first state, from now on, for which ``wanted`` holds. Raises ``SupervisorLost``."""
        while not wanted(self.state):
            if self.gone:
                raise SupervisorLost(self.gone)
            changed: asyncio.Future[None] = self._loop.create_future()
            self._changed.append(changed)
            await changed
        return self.state

    # browsers

    def attach(self, session_id: str, subscriber: Subscriber, after: int | None = None, window: int | None = None) -> None:
        """Give a browser its place: what follows number ``after`` (None: the last acknowledged one) is delivered to it."""
        earlier = self._subscribers.pop(session_id, None)
        if earlier is not None and earlier is not subscriber:
            _guard(earlier.cut, "replaced")
        if self.gone:
            _guard(subscriber.lost, self.gone)
        elif not self.connected:
            _guard(subscriber.cut, "line_broken")
        else:
            self._subscribers[session_id] = subscriber
            self._put(wire.pack("attach", session=session_id, after=after, window=window))

    def detach(self, session_id: str, forget: bool = False, subscriber: Subscriber | None = None) -> None:
        """A browser is gone; with ``forget`` its place is given up. With ``subscriber`` only if the place is still its own."""
        if subscriber is None or self._subscribers.get(session_id) is subscriber:
            self._subscribers.pop(session_id, None)
            self._put(wire.pack("detach", session=session_id, forget=forget))

    def ack(self, session_id: str, n: int) -> None:
        """Everything up to ``n`` has arrived."""
        self._put(wire.pack("ack", session=session_id, n=n))

    def send(self, session_id: str, channel: str, parts: Sequence[Part], m: int | None = None) -> None:
        """A client's message; ``m`` is the client's own number, repeats of which the supervisor drops."""
        self._put(wire.pack("in", parts, session=session_id, channel=channel, m=m))

    # orders and calls

    def order(self, do: str, epoch: tuple[int, int], **fields: Any) -> None:
        """Send an order of the broker. It is answered in the state; if the line is broken it is lost."""
        self._put(wire.pack("order", do=do, epoch=list(epoch), **fields))

    async def call(self, do: str, timeout: float = 10.0, **fields: Any) -> dict[str, Any]:
        """Ask the supervisor to do something; its answer. Raises the ``ElasticError`` that it answers, ``SupervisorLost``: at once where
        it is known not to answer, and then it isn't asked."""
        if not self.connected:
            unknown = f"the supervisor of kernel {self.kernel_id} can't be reached just now: try again"
            raise SupervisorLost(self.gone or (self.silence and f"{self.silence} {NEXT_STEP}") or unknown)
        if self._unanswered or (self.silence and self._silent):
            self._put(wire.pack("ping"))  # so that the next try finds it, should it answer again
            raise SupervisorLost(f"{self.silence or self.supervisor.trouble() or self.supervisor.silence} {NEXT_STEP}")
        number, heard = next(self._ids), self._heard
        answered: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._calls[number] = answered
        self._put(wire.pack("call", id=number, do=do, **fields))
        try:
            async with asyncio.timeout(timeout):
                answer = await answered
        except TimeoutError:
            self._unanswered = self._heard == heard
            silent = f"the supervisor of kernel {self.kernel_id} has not answered within {timeout:g} seconds"
            raise SupervisorLost(f"{silent}. {NEXT_STEP}") from None
        finally:
            self._calls.pop(number, None)
        if not answer.get("ok"):
            raise answered_error(answer)
        return answer

    def tell(self, number: int, answer: dict[str, Any]) -> None:
        """Answer question ``number`` of the kernel; lost if the line is broken."""
        self._put(wire.pack("told", id=number, answer=answer))

    # dialling

    async def _dial(self, timeout: float) -> None:
        self._hang_up()
        socket = self._socket = self._context.socket(zmq.DEALER)
        socket.linger = 200
        socket.sndhwm = socket.rcvhwm = 0
        socket.reconnect_ivl = -1  # a new line is a new dialer to the supervisor: it needs a new hello
        socket.tcp_keepalive = 1
        socket.tcp_keepalive_idle, socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = KEEPALIVE
        socket.tcp_maxrt = int(UNHEARD * 1000)
        self._monitor = socket.get_monitor_socket(_ENDINGS)
        curve = self.supervisor.link_curve
        if curve is not None:
            socket.curve_serverkey, socket.curve_publickey = curve.server.encode(), curve.public.encode()
            socket.curve_secretkey = curve.secret.encode()
        self._loop.add_reader(socket.fd, self._read)
        self._loop.add_reader(self._monitor.fd, self._watch)
        socket.connect(self.supervisor.link_address)
        welcome = self._welcome = self._loop.create_future()
        versions = [wire.OLDEST_VERSION, wire.NEWEST_VERSION]
        self._put(wire.pack("hello", versions=versions, generation=self._generation, roles=self._roles))
        self._loop.call_soon(self._watch)  # what has happened before we watched
        try:
            async with asyncio.timeout(timeout):
                state = await welcome
        except TimeoutError:
            silent = f"the supervisor of kernel {self.kernel_id} has not answered within {timeout:g} seconds"
            raise SupervisorLost(f"{silent}. {NEXT_STEP}") from None
        finally:
            self._welcome = None
        self.connected, self._silent, self._unanswered = True, 0, False
        self.dials += 1
        if state.kernel_id != self.kernel_id and self.supervisor.whose is not None:  # it was started for nobody
            await self.call("become", timeout, whose=dict(self.supervisor.whose))
            state.kernel_id = self.kernel_id
        self._new_state(state)

    def _hang_up(self) -> None:
        self.connected = False
        socket, self._socket = self._socket, None
        monitor, self._monitor = self._monitor, None
        if socket is None or monitor is None:
            return
        self._loop.remove_reader(monitor.fd)
        self._loop.remove_reader(socket.fd)
        socket.disable_monitor()
        socket.close()

    def _watch(self) -> None:
        """Has the line been cut? (Any event that we asked for means that.)"""
        monitor = self._monitor
        if monitor is None:
            return
        try:
            monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        self._read()  # its last words
        self._broken()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(PING_SECONDS, self._tick)
        if not self.connected:
            return
        self._silent += 1
        if self._silent > SILENT_PINGS:
            self._broken()
            return
        if self._silent > TOLD_PINGS and self.supervisor.alive():
            self._silence(self.supervisor.trouble() or self.supervisor.silence)
        self._put(wire.pack("ping"))

    def _broken(self) -> None:
        """The line is cut: dial again, or find that the supervisor is gone."""
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(SupervisorLost(f"nobody answers at {self.supervisor.link_address}: the kernel is gone"))
        if not self.connected or self.gone:
            return
        self._hang_up()
        subscribers, self._subscribers = self._subscribers, {}
        if self.supervisor.alive():
            for subscriber in subscribers.values():
                _guard(subscriber.cut, "line_broken")
            self._dial_again()
        else:
            self._subscribers = subscribers
            self._finish(self.supervisor.obituary())

    def _dial_again(self) -> None:
        self._redialling = self._loop.create_task(self._redial(), name=f"redial {self.kernel_id}")

    async def _redial(self) -> None:
        """As long as it lives: what it holds stays its own however long it is silent (stopped, or swapped out)."""
        pause, since = 0.05, self._loop.time()
        while True:
            await asyncio.sleep(pause)
            if not self.supervisor.alive():
                break
            try:
                await self._dial(5.0)
                self._fail_calls("the line to the kernel's supervisor broke: try again")  # now it is known that this is all
                self._silence("")
                return
            except VersionError as exc:
                log.warning("kernel %s: %s", self.kernel_id, exc)
                break
            except SupervisorLost:
                pause = min(2 * pause, MOST_PAUSE)
                long = self._loop.time() - since > SILENCE_SECONDS
                self._silence(self.supervisor.trouble() or (self.supervisor.silence if long else self.silence))
        self._finish(self.supervisor.obituary())

    def _silence(self, why: str) -> None:
        if why == self.silence:
            return
        self.silence = why
        if why:
            log.warning("kernel %s: %s", self.kernel_id, why)
        for callback in list(self._on_silent):
            _guard(callback, self, why)

    def _finish(self, why: str) -> None:
        self.gone = why
        if self._socket is not None and self.connected:
            self._put(wire.pack("bye"))
        self._hang_up()
        if self._ticker:
            self._ticker.cancel()
        if self._redialling and self._redialling is not _current_task():
            self._redialling.cancel()
        self._fail_calls(why)
        subscribers, self._subscribers = self._subscribers, {}
        for subscriber in subscribers.values():
            _guard(subscriber.lost, why)
        for callback in list(self._on_lost):
            _guard(callback, self, why)
        self._wake()

    def _fail_calls(self, why: str) -> None:
        for answered in self._calls.values():
            if not answered.done():
                answered.set_exception(SupervisorLost(why))

    # messages

    def _put(self, frames: list[Part]) -> None:
        if self._socket is None:
            return
        try:
            multipart.send(self._socket, frames, multipart.NOW)
        except zmq.Again:  # nobody is at the other end any more, and the monitor will say so: as if it had been lost on the way
            return
        self._read_soon()  # sending may have used up the descriptor's signal that something can be read

    def _read_soon(self) -> None:
        if not self._reading and self._socket is not None and self._socket.events & zmq.POLLIN:
            self._reading = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._reading = False
        socket = self._socket
        if socket is None:
            return
        for _ in range(BATCH):
            try:
                frames = multipart.take(socket)
            except zmq.Again:
                return
            self._silent, self._unanswered = 0, False
            self._heard += 1
            try:
                self._receive(frames)
            except Exception as exc:  # whatever it was, the messages behind it must not wait
                log.warning("kernel %s: a message of the supervisor was dropped: %s", self.kernel_id, exc)
            if self._socket is not socket:
                return
            if self.connected:
                self._silence("")
        self._reading = True
        self._loop.call_soon(self._read)

    def _receive(self, frames: list[bytes]) -> None:
        header = json.loads(frames[0])
        kind = header["t"]
        if kind == "out":
            subscriber = self._subscribers.get(header["session"])
            if subscriber is not None:
                _guard(subscriber.deliver, header["n"], header["channel"], frames[1:])
        elif kind == "state":
            self._new_state(KernelState.from_json(header["state"]))
        elif kind == "taken":
            subscriber = self._subscribers.get(header["session"])
            if subscriber is not None:
                _guard(subscriber.taken, header["m"])
        elif kind == "attached":
            subscriber = self._subscribers.get(header["session"])
            if subscriber is not None:
                _guard(subscriber.attached, header["n"], header["lost"], header["seen"])
        elif kind == "cut":
            subscriber = self._subscribers.pop(header["session"], None)
            if subscriber is not None:
                _guard(subscriber.cut, header["reason"])
        elif kind == "answer":
            answered = self._calls.get(header["id"])
            if answered is not None and not answered.done():
                answered.set_result(header)
        elif kind == "ask":
            if self.on_ask is not None:
                _guard(self.on_ask, self, header["id"], header["question"])
        elif kind == "welcome":
            self.version = header["version"]
            if self._welcome is not None and not self._welcome.done():
                self._welcome.set_result(KernelState.from_json(header["state"]))
        elif kind == "refused":
            self._refused(header)
        elif kind != "pong":
            raise WireError(f"unknown message {str(kind)[:20]!r}: the supervisor is newer than this gateway understands")

    def _refused(self, header: dict[str, Any]) -> None:
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(answered_error(header))
        elif header["reason"] == "no_hello":  # it has taken us for gone
            self._broken()
        else:
            log.warning("kernel %s: the supervisor refused: %s", self.kernel_id, header["message"])
            for callback in list(self._on_refused):
                _guard(callback, self, header)

    def _new_state(self, state: KernelState) -> None:
        self.state = state
        for callback in list(self._on_state):
            _guard(callback, self, state)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, []
        for each in changed:
            if not each.done():
                each.set_result(None)


def _add(callbacks: list[Any], callback: Any) -> Callable[[], None]:
    callbacks.append(callback)

    def end() -> None:
        if callback in callbacks:
            callbacks.remove(callback)

    return end


def _guard(call: Callable[..., None], *args: Any) -> None:
    """One listener's fault must not cost another its message."""
    try:
        call(*args)
    except Exception:
        log.exception("a listener on a kernel's line failed")


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
