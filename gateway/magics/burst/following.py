"""Follows a burst to its end: its events into the cell that asked, what it leaves into the kernel.

It must never end a burst because the gateway is away, and never lose an event over that.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Optional

from ...protocol import burst
from ...protocol.errors import ElasticError
from .calls import AWAY, EVENTS_SECONDS, call
from .depot import Depot, depot
from .outlet import Outlet

RETRY_SECONDS = 0.5  # between two tries to reach a gateway that is away


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
    _rest: str = ""
    _doing: str = "starting"
    _running: str = ""
    _step: str = ""  # how far its loops are, where it says so
    _failure: Optional[dict[str, Any]] = None

    def follow(self, until: float = float("inf")) -> Optional[Ended]:
        """Show what comes until the burst ends; None where ``until`` (monotonic seconds) comes first."""
        while time.monotonic() < until:
            try:
                ended, _ = self._more(wait=True)
            except ElasticError as exc:
                if exc.reason not in (AWAY, "supervisor_lost"):
                    raise
                self._say("the gateway is away; its workers go on", now=True)
                time.sleep(RETRY_SECONDS)
                continue
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
        answer = call("events", timeout=EVENTS_SECONDS, burst=self.shown["id"], since=self._since, wait=wait)
        self.shown, self._since = answer["burst"], answer["next"]
        *lines, self._rest = (self._rest + answer["text"]).split("\n")
        for line in lines:
            event = json.loads(line)
            if event["t"] == burst.END:
                return self._ended(event), True
            self._note(event)
        self.outlet.flush()
        return None, bool(answer["text"])

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
        took = (self.shown.get("ended") or event["at"]) - self.shown["created"]
        words = {burst.OK: "done in", burst.CANCELLED: "cancelled after", burst.ERROR: "failed after", burst.LOST: "lost after"}
        self._say(f"{words[event['outcome']]} {took:.1f} s", now=True)
        return Ended(self.shown["id"], event["outcome"], event.get("message", ""), depot(self.shown), self._failure)

    def _say(self, text: str, now: bool = False) -> None:
        if self.status:
            self.outlet.status(f"{self.shown['name']} · {self.shown['engine']} · {text}", now)
