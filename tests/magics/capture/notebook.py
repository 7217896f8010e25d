"""A notebook in a test: cells that run here, and cells that run elsewhere and come home."""

from __future__ import annotations

import linecache
from typing import Any

from gateway.magics import capture
from tests.magics.capture.elsewhere import Answer, Ranks


class Notebook:
    """``here`` runs a cell, ``there`` sends one; names are read by index."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.count = 0
        self.answer = Answer()
        self.capsule: capture.Capsule | None = None

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def here(self, source: str) -> None:
        self.count += 1
        name = f"<notebook {id(self)} [{self.count}]>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), self.names)

    def pack(self, source: str, **options: Any) -> capture.Capsule:
        self.count += 1
        options = {"header": "%%distributed -w 2", "number": self.count, **options}
        self.capsule = capture.pack(source, self.names, capture.Options(**options))
        return self.capsule

    def there(self, source: str, *, names: dict[str, Any] | None = None, returning: dict[str, Any] | None = None, **options: Any):
        """Sends a cell and takes home what it made; raises what it raised."""
        capsule = self.pack(source, **options)
        self.answer = self.ranks.run(capsule.blobs, names, **(returning or {}))
        if self.answer.failed:
            raise capture.failure(self.answer.failed, self.names)
        assert self.answer.back is not None, self.answer
        return capture.take(self.answer.back, self.names)
