"""A pod asks what it is to run, and waits until that can be said. It must never leave a question open for longer than ``PLAN_SECONDS``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ...protocol.errors import ElasticError
from ..record import ENDED, RUNNING, Record

PLAN_SECONDS = 20.0


async def answered(record: Record, answer: Callable[[], dict[str, Any]], look: float) -> dict[str, Any]:
    """What ``answer`` returns once that isn't empty: asked each ``look`` seconds. {}: the pod may ask again. Raises ``ElasticError`` where
    the burst is over."""
    end = time.monotonic() + PLAN_SECONDS
    while time.monotonic() < end and record.state == RUNNING:
        if found := answer():
            return found
        await asyncio.sleep(look)
    if record.state == ENDED:
        raise ElasticError(f"{record.name} is over.", reason="no_such_burst")
    return {}
