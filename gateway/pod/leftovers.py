"""What a kernel leaves running when its process ends: nothing of it may stay on a GPU that goes to somebody else.

For simulated GPUs, and where no driver tells who is on a real one: where it does, what never touched one is spared. It must never end
anything that wasn't started by this kernel, nor what a kernel without a GPU has left: that is the user's business.
"""

from __future__ import annotations

import logging
import time
from typing import Optional

from .processes import alive, family, kill

log = logging.getLogger(__name__)

PATIENCE = 2.0  # seconds for what was killed to end; what hangs longer hangs in a driver


def end(root: int, mark: str, before: Optional[int] = None) -> None:
    """End what descends from ``root``, which has ended, or was started with ``mark`` in its environment; returns once it has ended.
    ``before``: only what was started until then (clock ticks since boot)."""
    left = [process for process in family(root, mark) if before is None or process[1] <= before]
    for identity in left:
        kill(identity)
    until = time.monotonic() + PATIENCE
    while any(map(alive, left)) and time.monotonic() < until:
        time.sleep(0.005)
    if left:
        log.info("ended %d processes that the kernel had left on its GPU", len(left))
