"""The supervisor's end of the link: dialers, their roles and generations, and the browsers that come through them.

It must never obey an order older than one already obeyed, and never let one dialer's silence slow another.
"""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

import zmq

from ..protocol import multipart, wire
from ..protocol.errors import BrokerUnavailable, ElasticError, SettingError, StaleOrderError, WireError
from ..protocol.model import KernelState, Spec
from ..protocol.websocket import check_request
from ..protocol.wire import Part
from .front import private
from .messages import Messages, size
from .reactor import Reactor, drain
from .sessions import Entry, Session, Sessions
from .zap import DOMAIN, Zap

log = logging.getLogger(__name__)

LINKED = b"L"  # first envelope frame of requests that came over the link; the session's name is the second

SILENCE = 20.0  # seconds without a word (dialers ping more often) after which a dialer counts as gone
SLOW_READER = 30.0  # seconds a browser may leave its credit used up before it is cut
HANDSHAKE = 5.0  # seconds for whoever connects over the network to show its key
UNHEARD = 30.0  # seconds without a sign of the other machine after which a connection counts as broken
ASKING = 30.0  # seconds for whoever leases here to answer a question of the kernel; some are answered when something happens
MOST_BYTES = 1 << 30  # of one part that comes over the network, so that no stranger can claim more


@dataclass
class Dialer:
    """Who is at the other end: a gateway, a broker or the process that started the kernel."""

    address: bytes
    roles: frozenset[str] = frozenset()
    generation: int = 0
    heard: float = field(default_factory=time.monotonic)


class Link:
    """One ROUTER for all dialers, at ``address``: a socket in ``folder``, or a port of the network where ``spec`` says so.

    The supervisor gives its hands: ``on_request``, ``on_order``, ``on_call`` and ``state``. Raises ``SettingError`` where the network
    is asked for without keys.
    """

    def __init__(self, context: zmq.Context, folder: Path, spec: Spec, messages: Messages) -> None:
        self._spec, self._messages = spec, messages
        self._zap: Optional[Zap] = None
        self._socket = context.socket(zmq.ROUTER)
        self._socket.linger = 500
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.router_mandatory = 1  # a dialer that is gone is an error here, not a silence
        if spec.link_ip is None:
            self.address = f"ipc://{folder / 'link'}"
            self._socket.bind(self.address)
            private(str(folder / "link"))
        else:
            self._secure(context, spec)
            self._socket.bind(f"tcp://{spec.link_ip}:{spec.link_port or '*'}")
            self.address = self._socket.last_endpoint.decode().rstrip("\0")
        self._dialers: dict[bytes, Dialer] = {}
        self._epoch = (0, 0)
        self._ids = itertools.count(1)
        self._asked: dict[int, tuple[bytes, float, Callable[[dict[str, Any]], None]]] = {}
        self.sessions = Sessions(spec.journal_bytes, self._send_entry, self._note)
        self.on_request: Callable[[str, list[Part], list[Part]], None]
        self.on_order: Callable[[dict[str, Any]], None]
        self.on_call: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], Optional[dict[str, Any]]]
        self.state: Callable[[], KernelState]

    def watch(self, reactor: Reactor) -> None:
        reactor.add(self._socket, lambda: drain(self._socket, self._received))
        if self._zap is not None:
            self._zap.watch(reactor)

        def look() -> None:
            self._expire(time.monotonic())
            reactor.call_later(5.0, look)

        reactor.call_later(5.0, look)

    @property
    def brokered(self) -> bool:
        """A broker listens: somebody can grant a GPU."""
        return any("broker" in dialer.roles for dialer in self._dialers.values())

    @property
    def dialled(self) -> bool:
        """Somebody is at the other end."""
        return bool(self._dialers)

    def publish(self, channel: str, parts: list[Part], msg_type: str, to: Optional[str] = None, once: bool = False) -> None:
        """To every browser, or to one session; kept until acknowledged, with ``once`` until sent."""
        if self.sessions.all:
            self.sessions.publish(Entry(channel, parts, msg_type, once=once), to)

    def send_state(self, state: KernelState) -> None:
        for dialer in list(self._dialers.values()):
            self._send(dialer.address, wire.pack("state", state=state.to_json()))

    def ask(self, question: dict[str, Any], answered: Callable[[dict[str, Any]], None]) -> None:
        """Ask whoever leases here, for the kernel. ``answered`` gets ``ok`` with fields, or not ``ok``, with ``message`` and ``reason``."""
        broker = next((dialer for dialer in self._dialers.values() if "broker" in dialer.roles), None)
        number = next(self._ids)
        if broker is None:
            answered(_unheard("Nobody leases here just now: the gateway is away or starting"))
            return
        self._asked[number] = broker.address, time.monotonic() + ASKING, answered
        self._send(broker.address, wire.pack("ask", id=number, question=question))

    def close(self) -> None:
        self._socket.close()
        if self._zap is not None:
            self._zap.close()

    def _secure(self, context: zmq.Context, spec: Spec) -> None:
        """Nobody but the holder of one key, and no stranger for long."""
        keys = spec.link_curve or {}
        missing = [name for name in ("publickey", "secretkey", "client") if not keys.get(name)]
        if missing:
            raise SettingError(f"a link over the network needs keys: link_curve lacks {', '.join(missing)}")
        if not zmq.has("curve"):
            raise SettingError("this image's pyzmq has no CURVE, which a link over the network needs: install pyzmq from its wheel")
        try:
            self._zap = Zap(context, keys["client"])
            self._socket.curve_secretkey, self._socket.curve_publickey = keys["secretkey"].encode(), keys["publickey"].encode()
        except (ValueError, zmq.ZMQError) as exc:
            raise SettingError(f"link_curve holds what is no CURVE key: {exc}") from None
        self._socket.curve_server = True
        self._socket.zap_domain, self._socket.zap_enforce_domain = DOMAIN, 1
        self._socket.handshake_ivl, self._socket.maxmsgsize = int(HANDSHAKE * 1000), MOST_BYTES
        self._socket.tcp_keepalive, self._socket.tcp_keepalive_idle, self._socket.tcp_keepalive_intvl = 1, 10, 5
        self._socket.tcp_maxrt = int(UNHEARD * 1000)

    # what comes in

    def _received(self, frames: list[bytes]) -> None:
        address = frames[0]
        try:
            header, parts = wire.unpack(frames[1:])
            dialer = self._dialers.get(address)
            if dialer is None and header["t"] != "hello":
                self._send(address, wire.pack("refused", message="say hello first", reason="no_hello"))
                return
            if dialer is not None:
                dialer.heard = time.monotonic()
            handler = getattr(self, f"_on_{header['t']}", None)
            if handler is None:
                raise WireError(f"unknown message {header['t'][:20]!r}: one side is newer than the other understands")
            handler(dialer or Dialer(address), header, parts)
        except (ElasticError, KeyError, TypeError, ValueError) as exc:
            reason = getattr(exc, "reason", "malformed_message")
            log.warning("refused a link message: %s", exc)
            self._send(address, wire.pack("refused", message=str(exc), reason=reason))

    def _on_hello(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        oldest, newest = header["versions"]
        version = min(newest, wire.NEWEST_VERSION)
        if version < max(oldest, wire.OLDEST_VERSION):
            message = f"this supervisor speaks versions {wire.OLDEST_VERSION} to {wire.NEWEST_VERSION}, the caller {oldest} to {newest}"
            self._send(dialer.address, wire.pack("refused", message=message, reason="no_common_version"))
            return
        dialer.roles, dialer.generation = frozenset(header.get("roles", ())), int(header.get("generation", 0))
        self._dialers[dialer.address] = dialer
        self._send(dialer.address, wire.pack("welcome", version=version, state=self.state().to_json()))

    def _on_attach(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        after, name = header.get("after"), str(header["session"])
        window = int(header.get("window") or self._spec.window_bytes)
        session = self.sessions.attach(name, dialer.address, None if after is None else int(after), window, time.monotonic())
        lost, session.lost = session.lost, 0
        self._send(dialer.address, wire.pack("attached", session=name, n=session.acked, lost=lost, seen=session.seen))
        self.sessions.pump(session)

    def _on_detach(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        session = self.sessions.all.get(str(header["session"]))
        if session is not None and session.address in (dialer.address, None):  # else it has come back through another dialer
            self.sessions.leave(session.name, time.monotonic(), forget=bool(header.get("forget")))

    def _on_ack(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        self.sessions.ack(str(header["session"]), int(header["n"]), time.monotonic())

    def _on_in(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        name, channel, m = str(header["session"]), header["channel"], header.get("m")
        session = self.sessions.all.get(name)
        if m is not None and session is not None:
            repeat = m <= session.seen
            session.seen = max(session.seen, m)
            self._send(dialer.address, wire.pack("taken", session=name, m=session.seen))
            if repeat:
                return
        check_request(channel, parts)
        self.on_request(channel, [LINKED, name.encode()], parts)

    def _on_order(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        generation, count = header["epoch"]
        if (generation, count) <= self._epoch:
            raise StaleOrderError(f"order {generation}.{count} is older than {self._epoch[0]}.{self._epoch[1]}, which was obeyed already")
        self._epoch = (generation, count)
        self.on_order(header)

    def _on_call(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        def answer(fields: dict[str, Any]) -> None:
            self._send(dialer.address, wire.pack("answer", id=header["id"], **{"ok": True, "message": "", "reason": "", **fields}))

        try:
            fields = self.on_call(header, answer)
        except ElasticError as exc:
            fields = {"ok": False, **exc.to_json()}
        if fields is not None:
            answer(fields)

    def _on_told(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        asked = self._asked.pop(int(header["id"]), None)
        if asked is not None:
            asked[2](header["answer"])

    def _on_ping(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        self._send(dialer.address, wire.pack("pong"))

    def _on_bye(self, dialer: Dialer, header: dict[str, Any], parts: list[Part]) -> None:
        self._gone(dialer.address)

    # what goes out

    def _send(self, address: bytes, frames: list[Part]) -> bool:
        try:
            multipart.send(self._socket, [address, *frames], multipart.NOW)
            return True
        except zmq.ZMQError as exc:
            if exc.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self._gone(address)
            return False

    def _send_entry(self, session: Session, number: int, entry: Entry) -> None:
        assert session.address is not None
        self._send(session.address, wire.pack("out", entry.parts, session=session.name, n=number, channel=entry.channel))

    def _note(self, dropped: Entry, missing: int) -> Entry:
        text = (
            f"[{size(missing)} of output are missing here: nobody was reading, and a kernel keeps {size(self._spec.journal_bytes)}"
            " (an admin can raise LocalBackend.journal_bytes)]\n"
        )
        return Entry("iopub", self._messages.stderr(dropped.parts[1], text), "stream")

    def _gone(self, address: bytes) -> None:
        if self._dialers.pop(address, None) is None:
            return
        now = time.monotonic()
        self._give_up(lambda asked: asked[0] == address)
        for session in self.sessions.all.values():
            if session.address == address:
                self.sessions.leave(session.name, now)

    def _give_up(self, on: Callable[[tuple[bytes, float, Callable[[dict[str, Any]], None]]], bool]) -> None:
        for number in [number for number, asked in self._asked.items() if on(asked)]:
            self._asked.pop(number)[2](_unheard("The gateway has not answered"))

    def _expire(self, now: float) -> None:
        self._give_up(lambda asked: asked[1] < now)
        for dialer in list(self._dialers.values()):
            if now - dialer.heard > SILENCE:
                self._gone(dialer.address)
        for session in self.sessions.expire(now, self._spec.session_seconds, SLOW_READER):
            assert session.address is not None
            self._send(session.address, wire.pack("cut", session=session.name, reason="slow_reader"))
            self.sessions.leave(session.name, now)


def _unheard(why: str) -> dict[str, Any]:
    return {"ok": False, **BrokerUnavailable(f"{why}. Try again in a moment.").to_json()}
