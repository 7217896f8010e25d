"""When a kernel that does nothing is ended, and what its notebook is told before. Pure: no clock, no I/O.

It must never decide to end a kernel sooner than its user was told.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    STAYS = "stays"
    WARN = "warn"
    AVERT = "avert"  # it was warned, and stays after all
    CULL = "cull"


@dataclass(frozen=True)
class Decision:
    fate: Fate
    ends_in: float = 0.0  # seconds, of WARN


def decide(idle: float, timeout: float, warning: float, ends_in: float | None, spared: bool) -> Decision:
    """``idle``: seconds without work; ``warning``: how long before its end it is told, at most half of the ``timeout``; ``ends_in``:
    seconds until the end that it was told of, None: it wasn't; ``spared``: it works, or somebody keeps it."""
    warning = min(warning, timeout / 2)
    if timeout <= 0 or spared or idle <= timeout - warning:
        return Decision(Fate.STAYS if ends_in is None else Fate.AVERT)
    if ends_in is None and warning > 0:
        return Decision(Fate.WARN, max(warning, timeout - idle))
    if ends_in is not None:
        return Decision(Fate.CULL if ends_in <= 0 else Fate.STAYS)
    return Decision(Fate.CULL)


def interval(timeout: float, warning: float) -> int:
    """Seconds between two looks at all kernels. Stock looks every five minutes, which makes a short timeout a long one."""
    if timeout <= 0:
        return 300
    often = timeout / 4 if warning <= 0 else min(timeout / 4, warning / 2)
    return min(300, max(1, int(often)))


def long(seconds: float) -> str:
    """As people say it."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
