"""Starts that wait for their turn, on disk, so that a gateway that is killed meanwhile loses none: the next one goes on with them.

A file holds the request's environment, so it must never be readable by others, nor stay once the start has been made.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path

from ..protocol.model import Spec
from ..protocol.wire import dumps

log = logging.getLogger(__name__)


class Begun:
    """One private folder, a file for each start, by the name of the kernel's own folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, name: str, spec: Spec) -> None:
        """Raises ``OSError``, on a full disk say."""
        new = self._folder / f"{name}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(dumps(spec.to_json()))
        new.replace(self._folder / f"{name}.json")

    def forget(self, name: str) -> None:
        """No error where nothing is kept."""
        for kind in ("json", "new"):
            with contextlib.suppress(OSError):
                (self._folder / f"{name}.{kind}").unlink()

    def all(self) -> list[Spec]:
        """In the order in which they came. What can't be read is left out, and told in the log."""
        found = []
        for file in self._folder.glob("*.json"):
            try:
                found.append((file.stat().st_mtime_ns, Spec.from_json(json.loads(file.read_bytes()))))
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
                log.warning("%s can't be read, so that kernel does not start: %s", file, exc)
        return [spec for _, spec in sorted(found, key=lambda each: each[0])]
