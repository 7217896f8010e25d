"""Finds cloudpickle: the image's own where it has one, else the copy that came with this package.

The image's own comes first, because frameworks in it (Ray, Dask) bring the one they were tested with. This module must never put
anything before what the image has.
"""

from __future__ import annotations

import sys
from pathlib import Path

OLDEST = (3, 0)  # the oldest that the tests pass with
VENDOR = Path(__file__).resolve().parents[2] / "vendor"  # filled where code is packed for pods

try:
    import cloudpickle
except ImportError:
    sys.path.append(str(VENDOR))
    import cloudpickle

VERSION = str(cloudpickle.__version__)


def too_old() -> str:
    """Why this process's cloudpickle can't be used, and what to do; empty if it can."""
    major, minor = (int(part) for part in VERSION.split(".")[:2])
    if (major, minor) >= OLDEST:
        return ""
    oldest = ".".join(map(str, OLDEST))
    return f"cloudpickle {VERSION} is too old to send a cell's variables. Install 'cloudpickle>={oldest}' and restart the kernel."
