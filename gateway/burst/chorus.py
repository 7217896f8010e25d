"""What the pods of an elastic burst say, and what was decided about them: one journal, and the course that follows from it.

A word and what it leads to are written in one piece, so that the next gateway stands where this one stood.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ..protocol import burst
from .course import COURSE, Course, Event
from .gathering import FROM, KEPT, UPTO, Gathered, read_line
from .record import Folder


@dataclass
class Chorus(Gathered):
    """``world`` counts all pods that there have ever been. ``procs``: ranks of each."""

    course: Course = field(default_factory=lambda: Course(False))
    procs: int = 1

    @classmethod
    def of(cls, folder: Folder, restartable: bool, procs: int = 1) -> Chorus:
        """As an earlier gateway has left it."""
        found = cls(folder, 0, 0, course=Course(restartable), procs=procs)
        for event in filter(None, map(read_line, folder.lines())):
            inner = event.get("event", event)
            if FROM in event:
                found.upto[event[FROM]] = event[UPTO]
                found._apply(inner, event[FROM])
            elif inner.get("t") == COURSE:
                found._apply(inner, None)
        return found

    def decide(self, decided: Event, *more: Event) -> None:
        """``more``: what people are told of it."""
        self._apply(decided, None)
        self.folder.note({"t": burst.HEARD, "at": time.time(), "event": decided}, *more, *self._state(decided))

    def _apply(self, event: Event, pod: int | None) -> None:
        if event["t"] == burst.SAVED and not (self.folder.path / str(event.get("file"))).is_file():
            return  # another has taken its place, or it never came
        before = self.course.saved
        self.course.apply(event, pod)
        self.world = len(self.course.names)
        crew = self.course.now
        if before is not None and before != self.course.saved and (crew is None or before[0] != crew.state):
            (self.folder.path / before[0]).unlink(missing_ok=True)

    def _event(self, pod: int, event: dict[str, Any], upto: int) -> list[dict[str, Any]]:
        if event["t"] in KEPT:
            return [{**event, FROM: pod, UPTO: upto}]
        self._apply(event, pod)
        more = self._state(event)
        if event["t"] == burst.SAVED and event.get("text"):
            more.append({"t": burst.STEP, "at": time.time(), "text": event["text"]})
        return [*more, {"t": burst.HEARD, "at": time.time(), "event": event, FROM: pod, UPTO: upto}]

    def _state(self, event: Event) -> list[Event]:
        crew = self.course.now
        if crew is None or not (event["t"] == burst.READY or event.get("do") == "go"):
            return []
        running, of = len(crew.ready) * self.procs, len(crew.pods) * self.procs
        return [{"t": burst.STATE, "at": time.time(), "running": running, "of": of}]
