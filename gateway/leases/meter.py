"""Who had how many GPUs, from when to when: as the book's kernels change, spans of time begin and end.

Three kinds: ``held``, GPUs leased from grant to release; ``executed``, what ran on them; ``reserved``, what a kernel that keeps its GPUs
all its life would have had, from its first lease to its end. Saved is reserved less held. What pods have by a cluster's scheduler is all
three at once, as long as they run. Pure: it must never know a clock, nor add
anything up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .devices import Devices
from .events import Elsewhere
from .record import KernelRecord

HELD, EXECUTED, RESERVED = KINDS = ("held", "executed", "reserved")


@dataclass(frozen=True, slots=True)
class Span:
    """Times are seconds on the broker's clock. ``end`` None: it goes on. ``gpus``: how many; ``uuids``: which, but for ``reserved``."""

    kind: str
    kernel_id: str
    user: str
    kernelspec: str
    flavor: str
    node: str
    gpus: int
    uuids: tuple[str, ...]
    begin: float
    end: float | None = None


class Meter:
    """``news`` are the spans that have begun or ended since somebody took them; one that ends comes twice."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._open: dict[str, dict[str, Span]] = {}  # by kernel and kind
        self.news: list[Span] = []

    def note(self, record: KernelRecord, now: float) -> None:
        """Something about it may have changed. What a supervisor tells of the time before counts from then."""
        spans = self._open.get(record.kernel_id)
        if spans is None:
            if not record.gpus and not record.parked:
                return
            spans = self._open[record.kernel_id] = {}
            self._begin(RESERVED, record, record.count or len(record.gpus), (), min(now, record.since))
        held = spans.get(HELD)
        if held is not None and held.uuids != record.gpus:
            self._end(spans, EXECUTED, now)
            self._end(spans, HELD, now)
        if record.gpus and HELD not in spans:
            self._begin(HELD, record, len(record.gpus), record.gpus, min(now, record.since))
        runs = bool(record.executing and record.gpus)
        if runs and EXECUTED not in spans:
            self._begin(EXECUTED, record, len(record.gpus), record.gpus, now)
        elif not runs:
            self._end(spans, EXECUTED, now if record.idle_since is None else min(now, record.idle_since))

    def gone(self, record: KernelRecord, now: float) -> None:
        """The kernel has ended."""
        spans = self._open.pop(record.kernel_id, {})
        for kind in list(spans):
            self._end(spans, kind, now)

    def elsewhere(self, event: Elsewhere, now: float) -> None:
        """What somebody who is no kernel has by a cluster's scheduler has changed."""
        nodes = ", ".join(event.nodes)
        spans, flavor = self._open.pop(event.holder, {}), self._devices.flavor_at(event.nodes)
        if any((span.gpus, span.node, span.flavor) == (event.running, nodes, flavor) for span in spans.values()):
            self._open[event.holder] = spans
            return
        for kind in list(spans):
            self._end(spans, kind, now)
        if event.running:
            made = {kind: Span(kind, event.holder, event.user, "", flavor, nodes, event.running, (), now) for kind in KINDS}
            self._open[event.holder] = made
            self.news.extend(made.values())

    def open(self) -> list[Span]:
        """Those that go on."""
        return [span for spans in self._open.values() for span in spans.values()]

    def take(self) -> list[Span]:
        """The news, once."""
        news, self.news = self.news, []
        return news

    def _begin(self, kind: str, record: KernelRecord, gpus: int, uuids: tuple[str, ...], begin: float) -> None:
        flavor = self._devices.flavor(record)
        span = Span(kind, record.kernel_id, record.user, record.name, flavor, record.node, gpus, uuids, begin)
        self._open[record.kernel_id][kind] = span
        self.news.append(span)

    def _end(self, spans: dict[str, Span], kind: str, end: float) -> None:
        span = spans.pop(kind, None)
        if span is not None:
            self.news.append(replace(span, end=max(span.begin, end)))
