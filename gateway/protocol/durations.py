"""How people write a duration: the same for ``%gpu hold``, the command line and the policy.

It must never guess: what isn't clear is no duration.
"""

from __future__ import annotations

import re
from typing import Optional

_NUMBER = r"(\d+(?:\.\d+)?)"
_WRITTEN = re.compile(rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?:in)?)?(?:{_NUMBER}s)?", re.ASCII)
_BARE = re.compile(_NUMBER, re.ASCII)
_SECONDS = (86400.0, 3600.0, 60.0, 1.0)


def read_duration(text: str) -> Optional[float]:
    """Seconds of ``90``, ``90s``, ``30m``, ``30min``, ``1h30m``, ``1.5h``, ``2d``; None for anything else."""
    if _BARE.fullmatch(text):
        return float(text)
    match = _WRITTEN.fullmatch(text) if text else None
    return sum(float(number) * unit for number, unit in zip(match.groups(), _SECONDS) if number) if match else None
