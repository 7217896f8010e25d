"""Small texts that outlive the gateway, one file each in a private folder: what was changed while it ran.

A text is there whole or as it was before. It must never hold anything by which somebody could come in.
"""

from __future__ import annotations

import os
from pathlib import Path


def read(file: Path) -> str:
    """ "" where there is none. Raises ``OSError``, ``ValueError`` where it is no text."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def write(file: Path, text: str) -> None:
    """Raises ``OSError``, and then the old one stays."""
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        with open(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
        ) as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
