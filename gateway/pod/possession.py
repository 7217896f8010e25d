"""Which GPUs this kernel is on, as everybody on the machine can tell: a lock for each, held by the supervisor.

Brokers decide; this makes sure that no mistake, no silence and no second broker ever puts two kernels on one GPU. It must never wait,
and never let go of a GPU that the kernel may still occupy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from ..protocol.errors import SettingError
from ..protocol.locks import USE, GpuLocks


class Possession:
    """``folder``: where the machine's GPUs are locked; None: nobody else could be on one. ``who``: shown to others. ``mark``: by which
    they find what is left of the kernel, should this process be killed."""

    def __init__(self, folder: Optional[str], who: str, mark: str = "") -> None:
        self._folder, self._who, self._mark = folder, who, mark
        self._locks = None if folder is None else GpuLocks(Path(folder), kind=USE)

    def move(self, folder: Optional[str]) -> None:
        """Lock there from now on, as whoever grants knows better than whoever started us (None: as before). Not while a GPU is held."""
        if folder is not None and folder != self._folder and not (self._locks and self._locks.held):
            self._folder, self._locks = folder, GpuLocks(Path(folder), kind=USE)

    def take(self, gpus: list[str]) -> str:
        """All of ``gpus`` or none. Returns "" or who is on one of them, for people."""
        if self._locks is None:
            return ""
        for uuid in gpus:
            holder = self._again(uuid)
            if holder:
                self.leave()
                return f"{uuid} is in use by {holder}"
        return ""

    def keep_only(self, gpus: list[str]) -> None:
        """The process is on no GPU any more but these."""
        for uuid in [] if self._locks is None else self._locks.held:
            if uuid not in gpus:
                self._locks.release(uuid)  # type: ignore[union-attr]

    def keep(self) -> str:
        """Hold on to what is held, should somebody have tidied the locks away. Returns "" or who was quicker."""
        return "" if self._locks is None else "; ".join(filter(None, map(self._again, self._locks.held)))

    def _again(self, uuid: str) -> str:
        assert self._locks is not None
        try:
            return self._locks.acquire(uuid, self._who, self._mark)
        except SettingError as exc:
            return str(exc)

    def leave(self) -> None:
        """The kernel is on no GPU any more."""
        if self._locks is not None:
            self._locks.release_all()
