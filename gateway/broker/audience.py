"""Whoever wants to hear of each change of the picture that ``GET /api/gpu`` gives.

Changes of one turn of the loop are told together. It must never ask for a picture while nobody listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from .snapshot import changes

log = logging.getLogger(__name__)


class Audience:
    """``picture()``: as it is now."""

    def __init__(self, picture: Callable[[], dict[str, Any]]) -> None:
        self._picture = picture
        self._listeners: list[Callable[[str, Any], None]] = []
        self._told: dict[str, Any] = {}  # the picture that they have
        self._due = False

    def join(self, callback: Callable[[str, Any], None]) -> Callable[[], None]:
        """Call ``callback(name, value)`` for each change from now on; returns what ends that."""
        if not self._listeners:
            self._told = self._picture()
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback) if callback in self._listeners else None

    def changed(self) -> None:
        """Something may have."""
        if self._listeners and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._due = False
        old, self._told = self._told, self._picture()
        for name, value in changes(old, self._told):
            for callback in list(self._listeners):
                try:
                    callback(name, value)
                except Exception:
                    log.exception("a subscriber failed")
