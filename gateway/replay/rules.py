"""What is compared: a policy's name on the command line, and what it means. The lease book decides under all of them.

``reservation``: a kernel has its GPUs from its start to its end. ``cull:SECONDS``: it is ended, state and all, when no cell has run for
so long, and the next cell starts another. ``elastic:SECONDS``: this gateway, with that idle timeout and the site's other rules.
``oracle``: what nobody can have, for comparison: parking and resuming cost nothing, are done at once after each cell, on any node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..leases.policy import Policy
from ..protocol.durations import read_duration
from ..protocol.errors import ElasticError


@dataclass(frozen=True)
class Costs:
    """Seconds that parking takes, and resuming, and more for each 10^9 bytes on the GPU."""

    move: float
    per_gb: float

    def of(self, memory: int) -> float:
        return self.move + self.per_gb * memory / 1e9


@dataclass(frozen=True)
class Rules:
    name: str
    policy: Policy
    costs: Costs
    keeps: bool = False  # a kernel holds its GPUs all its life, and can't run a cell without
    cull_after: float | None = None  # of a kernel that keeps them; None: never
    movable: bool = False  # a state resumes on any node


def read_rules(name: str, site: Policy, costs: Costs, movable: bool = False) -> Rules:
    """``name`` as it is typed; ``site``: the rules in force beside it. Raises ``ElasticError``."""
    kind, colon, text = name.partition(":")
    if kind == "reservation" and not colon:
        return Rules(name, site, costs, keeps=True)
    if kind == "oracle" and not colon:
        return Rules(name, replace(site, idle_timeout=0.0, min_hold=0.0), Costs(0.0, 0.0), movable=True)
    seconds = read_duration(text)
    if kind in ("cull", "elastic") and seconds is not None:
        if kind == "cull":
            return Rules(name, site, costs, keeps=True, cull_after=seconds)
        return Rules(name, replace(site, idle_timeout=seconds), costs, movable=movable)
    raise ElasticError(f"{name!r} is no policy: write reservation, cull:3600, elastic:120 or oracle (durations in seconds, or 1h).",
        reason="bad_usage",
    )  # fmt: skip
