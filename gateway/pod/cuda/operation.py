"""A park or a resume under way, as far as its helper has told of it: enough for another helper to go back from there.

Pure: it is told what happens and what time it is. It must never take a step that goes on for a new one: that would silence the alarm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ..device import Done
from ..reactor import Timer

ALARM_BYTES = 1 << 30  # for each of which a step may take a second more


@dataclass
class Parked:
    """What lies in host memory. Process ids go with their start; sizes are bytes by process id and GPU."""

    processes: list[list[int]]
    sizes: dict[str, dict[str, int]]
    bytes: int
    home: list[str]
    bound: bool  # further processes have begun with CUDA and hold no state


@dataclass
class Operation:
    """``since``: when this step began (seconds, monotonic)."""

    do: str
    goal: int  # the state to go back to where it fails
    done: Done
    fields: dict[str, Any]
    since: float
    processes: list[list[int]] = field(default_factory=list)  # those that were touched
    before: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    step: str = "look for processes with CUDA state"
    touched: bool = False  # something was done to one of them, or may have been
    helpers: int = 1
    timer: Optional[Timer] = None

    def told(self, event: dict[str, Any], now: float) -> None:
        """The helper says what it is doing; one that waits says so again and again."""
        self.processes = event.get("processes", self.processes)
        self.before = event.get("before", self.before)
        self.sizes = event.get("sizes", self.sizes)
        step = f"{event['step']} of process {event['pid']}" if "step" in event else self.step
        if step != self.step:
            self.step, self.since, self.touched = step, now, True

    def patience(self, seconds: float, parked: int) -> float:
        """How long this step may take without anybody being alarmed. ``seconds``: for a state of no size; ``parked``: bytes that are to
        come back."""
        return seconds + (sum(self.before.values()) or parked) / ALARM_BYTES
