"""How a burst has ended, by what its ranks have said. Pure.

The failure that came first is the cause: ranks that speak with one that is gone fail after it. Clocks of nodes differ, so what only says
that somebody else is gone comes behind all that says more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..protocol import burst
from ..protocol.peers import follows
from .gathering import Gathered


def verdict(
    of: Gathered, leads: Collection[int] = (), called: Callable[[int], str] = "rank {}".format
) -> tuple[str, str, dict[str, Any] | None]:
    """``(outcome, message, the event of the rank whose cell failed first)``. ``leads``: pods whose end is that of all: once they have ended
    well, what others fail of is no more than that. ``called``: what a pod is called, for people."""
    if leads and all(of.ended.get(pod, {}).get("outcome") == burst.OK for pod in leads):
        return burst.OK, "", None
    if of.failed:
        rank, event = min(of.failed.items(), key=lambda item: (follows(item[1]), float(item[1].get("at") or 0), item[0]))
        return burst.ERROR, f"{str(event.get('as') or f'rank {rank}').capitalize()} failed: {event.get('name')}", event
    bad = {pod: end for pod, end in of.ended.items() if end["outcome"] != burst.OK}
    if not bad:
        return burst.OK, "", None
    # one that was told to end says less than one that has ended
    pod, end = min(bad.items(), key=lambda item: (item[1]["outcome"] == burst.CANCELLED, float(item[1].get("at") or 0), item[0]))
    outcome = burst.LOST if end["outcome"] == burst.CANCELLED else end["outcome"]
    return outcome, str(end.get("message", "")) if outcome != burst.LOST else f"{called(pod).capitalize()}: {end.get('message', '')}", None
