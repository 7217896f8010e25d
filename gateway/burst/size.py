"""How many workers an elastic burst should have. Pure.

Kernels come first: what somebody waits for is given back at once, what nobody needs is taken only once that has lasted. It must never go
below the least that the user asked for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Situation:
    """``gpus``: of each worker. ``idle``: GPUs that nobody has or waits for, since ``idle_since``; ``missed``: those that others wait
    for, ``whose``. ``pinned``: the number that the user wants for now. Times are seconds on one clock."""

    least: int
    most: int
    workers: int
    gpus: int
    idle: int = 0
    missed: int = 0
    whose: str = ""
    pinned: int | None = None
    changed: float = 0.0  # when the number was last changed, or could not be
    idle_since: float = 0.0


def wanted(of: Situation, now: float, grow_after: float | None) -> tuple[int, str]:
    """``(workers, why they change)``. ``grow_after``: seconds that GPUs must have been idle; None: it never grows by itself."""
    least, most = max(1, of.least), of.most
    if of.missed and of.gpus:
        giving = min(of.workers - least, -(-of.missed // of.gpus))
        if giving > 0:
            return of.workers - giving, f"{_gpus(giving * of.gpus)} back for {of.whose}, who waits."
    goal = most if of.pinned is None and of.gpus else of.pinned or of.workers
    room = of.idle // of.gpus if of.gpus else most
    workers = min(max(least, min(most, goal)), of.workers + room)
    if of.pinned is not None:
        return workers, "As asked."
    if workers > of.workers and grow_after is not None and now - max(of.changed, of.idle_since) >= grow_after:
        return workers, f"{_gpus((workers - of.workers) * of.gpus)} were idle."
    return of.workers, ""


def at_start(least: int, most: int, gpus: int, idle: int, cores: int) -> int:
    """As many as have room: on GPUs that are idle now, else a core each."""
    return max(least, min(most, idle // gpus if gpus else cores))


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
