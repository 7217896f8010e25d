"""Follows a burst to its end: its events into the cell that asked, what it leaves into the kernel.

It must never end a burst because the gateway is away, and never lose an event over that.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Optional

from ...protocol import burst
from ...protocol.errors import ElasticError
from .calls import EVENTS_SECONDS, LOST, RETRY_SECONDS, call
from .depot import Depot, depot
from .outlet import Outlet

NEWEST = 1 << 16  # bytes of events that are still shown once somebody has stopped it


@dataclass
class Ended:
    """How a burst has ended. ``failure``: the event of the rank that failed first, None: nobody's code did."""

    id: str
    outcome: str
    message: str
    depot: Depot
    failure: Optional[dict[str, Any]] = None


@dataclass
class Following:
    """One reader of a burst's journal. Each call of ``follow`` goes on where an earlier one was interrupted."""

    shown: dict[str, Any]  # the burst, as the gateway shows it
    outlet: Outlet
    status: bool = True  # whether there is a line that tells how it goes
    _since: int = 0
    _rest: list[str] = field(default_factory=list)  # pieces of an event that has not come whole
    _lines: deque[str] = field(default_factory=deque)  # events that have come and are not shown yet
    _doing: str = "starting"
    _running: str = ""
    _step: str = ""  # how far its loops are, where it says so
    _failure: Optional[dict[str, Any]] = None
    _hurries: bool = False
    _torn: bool = False  # what comes next begins in the middle of an event that is left out
    _left_out: int = 0  # bytes

    def hurry(self) -> None:
        """Somebody has stopped it: whoever waits for its end sees the newest of what is still to come."""
        self._hurries = True

    def follow(self, until: float = float("inf")) -> Optional[Ended]:
        """Show what comes until the burst ends; None where ``until`` (monotonic seconds) comes first."""
        __tracebackhide__ = True
        while time.monotonic() < until:
            try:
                ended, _ = self._more(wait=True)
            except ElasticError as exc:
                if exc.reason not in LOST:
                    raise
                self._say("the gateway is away; its workers go on", now=True)
                time.sleep(RETRY_SECONDS)
                continue
            except KeyboardInterrupt as exc:  # where in our code that was is nobody's matter
                exc._render_traceback_ = lambda: ["KeyboardInterrupt"]  # type: ignore[attr-defined]
                raise
            if ended is not None:
                return ended
            self._say(self._doing)
        return None

    def watch(self) -> None:
        """As ``follow``, where nobody is there to be told of an error."""
        try:
            self.follow()
        except ElasticError as exc:
            self._say(str(exc), now=True)

    def catch_up(self) -> None:
        """Show what there is now."""
        more = True
        while more:
            _, more = self._more(wait=False)
        self.outlet.end()

    def _more(self, wait: bool) -> tuple[Optional[Ended], bool]:
        """The end, if it is among what comes next; whether anything came."""
        __tracebackhide__ = True
        known = self.shown.get("state")
        came = bool(self._lines) or self._ask(wait)
        while self._lines:
            event = _event(self._lines[0])
            if event["t"] == burst.END:
                self._lines.clear()
                return self._ended(event), True
            self._note(event)
            self._lines.popleft()  # whoever is interrupted before that shows it again rather than never
        self.outlet.flush()
        if not came and known == "ended":  # nobody could write that down: its folder is gone, or its disk is full
            words = {"outcome": self.shown["outcome"], "message": self.shown["message"], "at": self.shown["ended"]}
            return self._ended(words), False
        return None, came

    def _ask(self, wait: bool) -> bool:
        """Whether anything came."""
        __tracebackhide__ = True
        hurry = {"newest": NEWEST} if self._hurries else {}
        answer = call("events", timeout=EVENTS_SECONDS, burst=self.shown["id"], since=self._since, wait=wait, **hurry)
        text, left_out, before = answer["text"], answer.get("left_out", 0), self._rest
        torn = self._torn or left_out > 0
        if left_out:
            self.outlet.skip()
            before = []
        if torn:
            _, end, text = text.partition("\n")
            torn = not end
        whole, rest = deque[str](), [*before, text]
        if "\n" in text:
            *lines, last = "".join(rest).split("\n")
            whole, rest = deque(lines), [last]
        # no call in between: an interrupt comes before all of it, or after
        self.shown, self._since, self._rest, self._lines, self._torn = answer["burst"], answer["next"], rest, whole, torn
        self._left_out += left_out
        return bool(answer["text"])

    def _note(self, event: dict[str, Any]) -> None:
        if event["t"] == burst.STATE:
            self._running = f"{event['running']}/{event['of']} running"
            self._doing = " · ".join(filter(None, (self._running, self._step)))
        elif event["t"] == burst.STEP:
            self._step = event["text"]
            self._doing = " · ".join(filter(None, (self._running, self._step)))
        elif event["t"] == burst.WAITS:
            self._doing = event["text"]
        elif event["t"] == burst.FAILED and self._failure is None:
            self._failure = event
        else:
            self.outlet.event(event)

    def _ended(self, event: dict[str, Any]) -> Ended:
        self.outlet.end()
        if self._left_out:
            said = f"{self._left_out / 1e6:.1f} MB of output from before the stop are left out here"
            self.outlet.note(f"{said}: `%burst logs {self.shown['name']}` has them")
            self.outlet.flush()
        took = (self.shown.get("ended") or event["at"]) - self.shown["created"]
        words = {
            burst.OK: "done in",
            burst.CANCELLED: "cancelled after",
            burst.ERROR: f"failed{self._where} after",
            burst.LOST: "lost after",
        }
        self._say(f"{words[event['outcome']]} {took:.1f} s", now=True)
        return Ended(self.shown["id"], event["outcome"], event.get("message", ""), depot(self.shown), self._failure)

    @property
    def _where(self) -> str:
        """On which rank a cell has failed, if it is one's own failure."""
        failed = self._failure
        return "" if failed is None else f" on {failed.get('as') or 'rank {rank}'.format_map(failed)}"

    def _say(self, text: str, now: bool = False) -> None:
        if self.status:
            engine = self.shown["engine"]
            self.outlet.status(" · ".join([self.shown["name"], *([] if engine == "none" else [engine]), text]), now)


def _event(line: str) -> dict[str, Any]:
    """Of a line that a full disk has torn nothing is known."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    return event if isinstance(event, dict) and "t" in event else {"t": ""}
