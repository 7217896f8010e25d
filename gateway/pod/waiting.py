"""What a notebook shows while its cell waits at the gate: busy, and one line that lives.

It must never leave a line behind that is no longer true.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, Callable, Optional

from ..protocol.wire import Part
from .gate import Gate, Request
from .messages import Messages, seconds
from .reactor import Reactor, Timer

LATE = 3.0  # seconds beyond its time from which on a GPU is said to be late: whoever has it may be stopped, which shows only later


class Waiting:
    """``publish(parts, msg_type)`` sends on iopub to everybody; ``brokered()`` says whether anybody can grant a GPU,
    ``alarm()`` what hangs, "" where nothing does."""

    def __init__(
        self, reactor: Reactor, gate: Gate, messages: Messages, publish: Callable[[list[Part], str], None], after: float,
        brokered: Callable[[], bool], alarm: Callable[[], str],
    ) -> None:  # fmt: skip
        self._reactor, self._gate, self._messages, self._publish, self._after = reactor, gate, messages, publish, after
        self._brokered, self._alarm = brokered, alarm
        self._held: dict[str, float] = {}  # msg_id -> since when
        self._lines: dict[str, tuple[str, str]] = {}  # msg_id -> (display id, text shown)
        self._timer: Optional[Timer] = None
        self._place: dict[str, Any] = {}
        self._placed_at = 0.0

    def held(self, request: Request) -> None:
        """A cell begins to wait (or goes on)."""
        if request.msg_id in self._held:
            return
        self._held[request.msg_id] = time.monotonic()
        self._publish(self._messages.status("busy", request.parts[0]), "status")
        if self._timer is None:
            self._timer = self._reactor.call_later(self._after, self._tick)

    def placed(self, place: dict[str, Any]) -> None:
        """The broker's word: position, of, holders, expected, and what its user holds too much of."""
        now, before = time.monotonic(), self._place.get("expected")
        overdue = before is not None and now - self._placed_at > before and place.get("position") == self._place.get("position")
        soon = place.get("expected") is not None and place["expected"] < 1.0
        if overdue and soon:  # nothing new: it does not begin to be on time again
            place = {**place, "expected": before}
        else:
            self._placed_at = now
        self._place = place
        if self._lines:
            self._show()

    def ended(self, request: Request, granted: bool) -> None:
        """A cell goes to the kernel, or was cancelled."""
        since = self._held.pop(request.msg_id, None)
        line = self._lines.pop(request.msg_id, None)
        if line is not None and since is not None:
            waited = seconds(time.monotonic() - since)
            text = f"Waited {waited} for a GPU." if granted else f"Stopped waiting for a GPU after {waited}."
            self._publish(self._messages.notice(request.parts[0], line[0], text, update=True), "update_display_data")
            if granted:  # the cell's first own output replaces the line
                self._publish(self._messages.make("clear_output", {"wait": True}, request.parts[0]), "clear_output")
        if not self._held:
            self._place = {}
            if self._timer:
                self._timer.cancel()
                self._timer = None

    def text(self, since: float, now: float) -> str:
        """The line itself."""
        said = ["Waiting for a GPU"]
        if self._alarm():
            said.append(f". {self._alarm()}; it may still come back, or restart the kernel")
        elif not self._brokered():
            said.append(" (no gateway answers at the moment; the cell stays in its place)")
        elif self._place:
            position, of = self._place.get("position", 1), self._place.get("of", 1)
            holders, quota = self._place.get("holders") or [], self._place.get("quota")
            said.append(f": {quota}" if quota else ": you are next" if position == 1 else f": place {position} of {of}")
            if holders:
                said.append(", held by " + ", ".join(map(str, holders[:3])) + (f" and {len(holders) - 3} more" if len(holders) > 3 else ""))
        expected = self._place.get("expected")
        if expected is not None:
            left = expected - (now - self._placed_at)
            said.append(f", about {seconds(left)} to go" if left >= 1 else ", any moment now" if left > -LATE else ", which is late")
        so_far = f" {now - since:.0f} s so far;" if now - since < 120 else f" {seconds(now - since)} so far;"
        said.append(f".{so_far} interrupt the kernel to stop waiting.")
        return "".join(said)

    def _tick(self) -> None:
        self._timer = None
        if self._held:
            self._show()
            self._timer = self._reactor.call_later(1.0, self._tick)

    def _show(self) -> None:
        now = time.monotonic()
        for lane in list(self._gate.lanes.values()):
            request = lane[0]
            since = self._held.get(request.msg_id)
            if since is None:
                continue
            line = self._lines.get(request.msg_id)
            text = self.text(since, now)
            if line is None or line[1] != text:
                display = line[0] if line else uuid.uuid4().hex
                self._lines[request.msg_id] = (display, text)
                kind = "update_display_data" if line else "display_data"
                self._publish(self._messages.notice(request.parts[0], display, text, update=line is not None), kind)
