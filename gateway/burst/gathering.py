"""What the ranks of a burst say, each from its own pod, gathered into the one journal of the burst.

Each pod's agent keeps a journal of its own and sends it piece by piece; how much of it is here stands with each line that came of it, so
that a gateway that was killed goes on where it was: nothing is missing, nothing is there twice. It must never decide what is done about
what they say.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from ..protocol import burst
from ..protocol.errors import BadRequest
from .record import Folder

FROM, UPTO = "from", "upto"  # in a line: the number of the pod, and how much of its journal has been taken in
HERE = "here"  # in one of how many run: those in that pod
KEPT = frozenset({burst.OUT, burst.SHOW, burst.STEP, burst.NOTE, burst.WAITS})


@dataclass
class Gathered:
    """``world``: how many pods there are; ``cells``: how many ranks run the cell. ``running``: by pod, how many of them it has; ``failed``:
    by rank, the words of those whose cell has failed; ``failing``: their pods; ``ended``: by pod, what its agent has said last."""

    folder: Folder
    world: int
    cells: int
    upto: dict[int, int] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    failed: dict[int, dict[str, Any]] = field(default_factory=dict)
    failing: set[int] = field(default_factory=set)
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def again(cls, folder: Folder, world: int, cells: int) -> Gathered:
        """As an earlier gateway has left it."""
        found = cls(folder, world, cells)
        for event in filter(None, map(read_line, folder.lines())):
            if FROM in event:
                found.upto[event[FROM]] = event[UPTO]
                found._event(event[FROM], event.get("event", event), event[UPTO])
        return found

    def take(self, pod: int, since: int, data: bytes) -> int:
        """``data``: whole lines of that pod's journal from byte ``since`` on. Returns from where the next are wanted. Raises
        ``BadRequest``."""
        if not 0 <= pod < self.world:
            raise BadRequest(f"There is no rank {pod}: there are {self.world}.")
        at = self.upto.get(pod, 0)
        if since != at or not data:
            return at
        made: list[dict[str, Any]] = []
        for line in data.split(b"\n")[:-1]:
            at += len(line) + 1
            event = read_line(line)
            if event is not None:
                made += self._event(pod, event, at)
        self.upto[pod] = at
        self.folder.note(*made)
        return at

    # inside

    def _event(self, pod: int, event: dict[str, Any], upto: int) -> list[dict[str, Any]]:
        kind = event["t"]
        if kind == burst.STATE:
            here = self.running[pod] = int(event.get(HERE, event.get("running", 1)))
            running = sum(self.running.values())
            return [{"t": kind, "at": time.time(), "running": running, "of": self.cells, HERE: here, FROM: pod, UPTO: upto}]
        if kind == burst.FAILED:
            self.failing.add(pod)
            self.failed.setdefault(int(event.get("rank", pod)), event)
        elif kind == burst.END:
            self.ended[pod] = event
        elif kind in KEPT:
            return [{**event, FROM: pod, UPTO: upto}]
        return [{"t": burst.HEARD, "at": time.time(), "event": event, FROM: pod, UPTO: upto}]


def read_line(line: bytes) -> dict[str, Any] | None:
    """An event; None where the line is torn, as a full disk leaves it."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("t"), str) else None
