"""What ranks fail of because others are gone. Pure.

It must never call a failure somebody else's that says anything of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_PEER_GONE = re.compile(r"Connection (closed|reset|refused)|Dist(Network|Backend|Store)Error|BrokenPipe|ConnectionError", re.IGNORECASE)


def follows(failed: dict[str, Any]) -> bool:
    """It says no more than that another rank is gone."""
    return bool(_PEER_GONE.search(str(failed.get("name", ""))))


def why_gone(failed: dict[str, Any], done: Sequence[str]) -> str:
    """For people, where those it has missed were through with their cell, in order; "" else. ``done``: what those are called."""
    if not done or not follows(failed):
        return ""
    were = f"{done[0]} was" if len(done) == 1 else f"{', '.join(done[:3])}{' and others' * (len(done) > 3)} were"
    return f"{were} through with the cell by then: what ranks do together (barriers, sums, gradients), each has to do equally often."
