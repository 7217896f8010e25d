"""Whole and once: what each browser has been sent, what it has acknowledged, what is kept for it.

Pure: it is told what happens and says what to send. It must never hold more than its budget: what nobody reads is dropped,
oldest first, text before pictures and never a status or a reply, and what was dropped is told in its place.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Optional

from ..protocol.wire import Part

STREAMS = 0  # dropped first
PICTURES = 1  # dropped when that is not enough
KEPT = 2  # never dropped

_RANK = {"stream": STREAMS, "display_data": PICTURES, "update_display_data": PICTURES, "execute_result": PICTURES, "clear_output": PICTURES,
         "comm_msg": PICTURES, "debug_event": PICTURES}  # fmt: skip


class Entry:
    """One message, shared by all the sessions that are owed it.

    ``missing``: bytes that it stands in for, where it is a note of loss. ``once``: never sent to a session again; for what a browser
    answers by hanging up, so that it could be sent for ever and never be acknowledged.
    """

    __slots__ = ("channel", "missing", "once", "owed", "parts", "rank", "size")

    def __init__(self, channel: str, parts: list[Part], msg_type: str, missing: int = 0, once: bool = False) -> None:
        self.channel = channel
        self.parts = parts
        self.size = sum(map(len, parts)) + 200
        self.rank = _RANK.get(msg_type, KEPT) if channel == "iopub" else KEPT
        self.missing = missing
        self.once = once
        self.owed = 0


class Session:
    """One browser's place. ``flying`` is sent and not acknowledged, ``waiting`` not sent; both hold (number, entry), oldest first."""

    def __init__(self, name: str, acked: int = 0) -> None:
        self.name = name
        self.window = 0
        self.flying: deque[tuple[int, Entry]] = deque()
        self.waiting: deque[tuple[int, Entry]] = deque()
        self.newest = acked  # number of the newest message it is owed
        self.acked = acked
        self.under_way = 0  # bytes flying
        self.seen = 0  # newest number of the client's own messages
        self.lost = 0  # messages dropped since the last attach
        self.address: Optional[bytes] = None  # the dialer it is reached through; None: absent
        self.since = 0.0  # last attach, acknowledgement or leave


class Sessions:
    """All sessions of a kernel. ``send(session, number, entry)`` puts one message on its way."""

    def __init__(self, budget: int, send: Callable[[Session, int, Entry], None], note: Callable[[Entry, int], Entry]) -> None:
        self._budget = budget
        self._send = send
        self._note = note  # makes the entry that tells of so many dropped bytes, in the place of a dropped one
        self._held = 0  # bytes of all entries that somebody is owed
        self.all: dict[str, Session] = {}

    # what the link says

    def attach(self, name: str, address: bytes, after: Optional[int], window: int, now: float) -> Session:
        """A browser has come (back). What follows ``after`` (None: the last acknowledged) will be sent again by ``pump``."""
        session = self.all.get(name)
        if session is None:
            session = self.all[name] = Session(name, acked=after or 0)
        session.address, session.window, session.since = address, window, now
        if after is not None:
            self._settle(session, after)
        for number, entry in reversed(session.flying):
            if entry.once:
                self._free(entry)
            else:
                session.waiting.appendleft((number, entry))
        session.flying.clear()
        session.under_way = 0
        return session

    def leave(self, name: str, now: float, forget: bool = False) -> None:
        """A browser is gone; with ``forget`` it won't come back."""
        session = self.all.get(name)
        if session is None:
            return
        session.address, session.since = None, now
        if forget:
            self._settle(session, session.newest)
            del self.all[name]

    def ack(self, name: str, number: int, now: float) -> None:
        """Everything up to ``number`` has arrived."""
        session = self.all.get(name)
        if session is not None and session.acked < number <= session.newest:
            session.since = now
            self._settle(session, number)
            self.pump(session)

    # what the kernel says

    def publish(self, entry: Entry, to: Optional[str] = None) -> None:
        """Owe ``entry`` to one session (if it is known), or to all."""
        if to is None:
            targets = list(self.all.values())
        else:
            targets = [self.all[to]] if to in self.all else []
        for session in targets:
            session.newest += 1
            session.waiting.append((session.newest, entry))
            self._owe(entry)
            self.pump(session)
        if self._held > self._budget:
            self._shrink()

    def pump(self, session: Session) -> None:
        """Send what its credit allows; one message always may go, however large."""
        while session.waiting and session.address is not None:
            number, entry = session.waiting[0]
            if session.under_way and session.under_way + entry.size > session.window:
                return
            session.flying.append(session.waiting.popleft())
            session.under_way += entry.size
            self._send(session, number, entry)

    def expire(self, now: float, absence: float, patience: float) -> list[Session]:
        """Forget who was absent for ``absence`` seconds; returns who let its credit run out and said nothing for ``patience``."""
        for session in list(self.all.values()):
            if session.address is None and now - session.since > absence:
                self.leave(session.name, now, forget=True)
        return [s for s in self.all.values() if s.address is not None and s.waiting and s.flying and now - s.since > patience]

    @property
    def present(self) -> int:
        return sum(1 for session in self.all.values() if session.address is not None)

    @property
    def held_bytes(self) -> int:
        return self._held

    # inside

    def _settle(self, session: Session, number: int) -> None:
        for queue in (session.flying, session.waiting):
            while queue and queue[0][0] <= number:
                entry = queue.popleft()[1]
                if queue is session.flying:
                    session.under_way -= entry.size
                self._free(entry)
        session.acked = max(session.acked, number)
        session.newest = max(session.newest, number)

    def _owe(self, entry: Entry) -> None:
        if not entry.owed:
            self._held += entry.size
        entry.owed += 1

    def _free(self, entry: Entry) -> None:
        entry.owed -= 1
        if not entry.owed:
            self._held -= entry.size

    def _shrink(self) -> None:
        """Back to nine tenths of the budget: oldest and least worth first, from whoever waits for most."""
        target = self._budget * 9 // 10
        by_debt = sorted(self.all.values(), key=lambda s: -sum(e.size for _, e in s.waiting))
        for rank in (STREAMS, PICTURES):
            for session in by_debt:
                if self._held > target:
                    self._thin(session, rank, target)

    def _thin(self, session: Session, rank: int, target: int) -> None:
        """Replace each run of dropped messages by one note, which keeps the number of the first."""
        kept: deque[tuple[int, Entry]] = deque()
        gap: Optional[tuple[int, Entry]] = None
        missing = 0
        enough = False
        for number, entry in session.waiting:
            enough = enough or self._held <= target  # for good: the note itself weighs something
            if entry.rank == rank and not enough:
                gap = gap or (number, entry)
                missing += entry.missing or entry.size
                session.lost += 1
                self._free(entry)
                continue
            if gap:
                kept.append(self._noted(gap, missing))
                gap, missing = None, 0
            kept.append((number, entry))
        if gap:
            kept.append(self._noted(gap, missing))
        session.waiting = kept

    def _noted(self, gap: tuple[int, Entry], missing: int) -> tuple[int, Entry]:
        note = self._note(gap[1], missing)
        note.missing = missing
        self._owe(note)
        return gap[0], note
