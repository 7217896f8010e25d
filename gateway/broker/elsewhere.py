"""GPUs that users have by a cluster's scheduler and not by a lease: the pods of bursts. They count in quotas and in the fair order,
and those of pods that run as GPU time.

It must never give or take a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..leases import events
from ..leases.book import Book
from ..leases.events import Event
from ..leases.levels import FLAVOR, KERNELSPEC, SITE

NONE: Mapping[str, int] = {}


class Elsewhere:
    """``tell`` hands events to the ``book``."""

    def __init__(self, book: Book, tell: Callable[[Iterable[Event]], None]) -> None:
        self._book, self._tell = book, tell

    def hold(self, holder: str, user: str, gpus: int, running: Mapping[str, int] = NONE) -> None:
        """So many from now on; 0: none any more. ``running``: those of pods that run, by node."""
        now = events.Elsewhere(holder, user, gpus, sum(running.values()), tuple(sorted(running)))
        if self._book.elsewhere.get(holder, events.Elsewhere(holder, user, 0)) != now:
            self._tell([now])

    def allowed(self, holder: str, user: str) -> tuple[int | None, str]:
        """``(how many the holder may have now, by whose word)``; None: as many as there are. What it has counts as its own."""
        quotas = [said for said in self._book.levels.quotas(user, "", "") if said.level not in (FLAVOR, KERNELSPEC)]
        if not quotas:
            return None, ""
        said, mine = quotas[0], self._book.elsewhere.get(holder)
        held = self._book.usage.held(user) - (mine.gpus if mine is not None else 0)
        whose = "Leases.gpus_per_user" if said.level == SITE else f"gpus_per_user of {said.whose}"
        return max(0, said.value - held), f"one user may hold {said.value} ({whose})"

    def most(self, user: str) -> int | None:
        """How many the user may ever have at once; None: no matter."""
        quotas = [said for said in self._book.levels.quotas(user, "", "") if said.level not in (FLAVOR, KERNELSPEC)]
        return quotas[0].value if quotas else None
