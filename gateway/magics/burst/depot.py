"""The folder of a burst as its kernel uses it: on this machine, or at the gateway where kernel and ranks are pods.

It must never make a second copy of what the kernel sends, and leaves no file behind of what it fetches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ...protocol import burst
from ...protocol.errors import ElasticError
from ...protocol.far import FarFolder


class Depot(Protocol):
    """Every method raises ``OSError`` or ``ElasticError`` where the folder can't be reached, or lacks that."""

    def bring(self, request: dict[str, Any], blobs: Sequence[burst.Buffer]) -> None:
        """How Python runs here, and what the cell takes along."""

    def request(self) -> dict[str, Any]: ...

    def fetch(self, *name: str) -> list[memoryview]:
        """A list of buffers that lies there."""

    def ranks(self) -> list[int]:
        """Those that have given something back."""


def depot(shown: dict[str, Any]) -> Depot:
    """Of a burst, as the gateway shows it to this kernel."""
    return Far(shown["access"]) if "access" in shown else Here(Path(shown["folder"]))


class Here:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def bring(self, request: dict[str, Any], blobs: Sequence[burst.Buffer]) -> None:
        try:
            burst.write_json(self._folder / burst.REQUEST, request)
            burst.write_buffers(self._folder / burst.CAPSULE, blobs)
        except OSError as exc:
            told = f"What the cell takes along can't be kept in {self._folder}: {exc.strerror or exc}."
            raise ElasticError(f"{told} Make room there, or take less along.", reason="not_kept") from None

    def request(self) -> dict[str, Any]:
        return burst.read_json(self._folder / burst.REQUEST)

    def fetch(self, *name: str) -> list[memoryview]:
        return burst.read_buffers(self._folder.joinpath(*name))

    def ranks(self) -> list[int]:
        return [int(file.name) for file in (self._folder / burst.RESULTS).glob("*[0-9]")]


class Far:
    def __init__(self, access: dict[str, Any]) -> None:
        self._far = FarFolder(access)

    def bring(self, request: dict[str, Any], blobs: Sequence[burst.Buffer]) -> None:
        self._far.put_json(burst.REQUEST, request)
        self._far.put_buffers(burst.CAPSULE, blobs)

    def request(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="burst-") as folder:
            self._far.get(burst.REQUEST, Path(folder, burst.REQUEST))
            return burst.read_json(Path(folder, burst.REQUEST))

    def fetch(self, *name: str) -> list[memoryview]:
        """Mapped from a file that has no name any more: its room is free again once nobody uses it."""
        with tempfile.TemporaryDirectory(prefix="burst-") as folder:
            for each in (f"{'/'.join(name)}.sizes", "/".join(name)):
                self._far.get(each, Path(folder, each))
            return burst.read_buffers(Path(folder, *name))

    def ranks(self) -> list[int]:
        found = [each.rpartition("/") for each in self._far.names()]
        return [int(number) for where, _, number in found if where == burst.RESULTS and number.isdigit()]
