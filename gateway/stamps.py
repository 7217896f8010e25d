"""How it is seen that a file is another one than the one that was read. It must never read the file."""

from __future__ import annotations

import os

Stamp = tuple[int, int, int, int]


def stamp(path: str) -> Stamp | None:
    """Changes with the file, also where it is a link that leads elsewhere now, as in a ConfigMap. None: it can't be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
