"""Where pods of bursts reach this gateway: its door, the certificate that they know it by, and each burst's token.

It must never tell a burst's token to anybody but its kernel and its pods, nor move the door while ranks look for it where it was.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from ...backends.base import Backend
from ...protocol import burst
from ...settings import Bursts as Settings
from .. import certificate
from ..door import Door
from ..record import Record

if TYPE_CHECKING:
    from ..bursts import Bursts

TOKEN = "token"  # file in a burst's folder


class Entrance:
    """``owner``: whose gateway this is."""

    def __init__(self, bursts: Bursts, backend: Backend, settings: Settings, owner: str, door: Door) -> None:
        self._bursts, self._jobs, self._settings, self._owner, self._door = bursts, backend.jobs, settings, owner, door
        self._url = self._certificate = ""

    async def open(self) -> None:
        """Raises ``ElasticError``, ``OSError``, ``ImportError``, ``KeyError``."""
        kept = await self._jobs.kept("bursts", self._make_certificate)
        self._open_door(kept["certificate"], kept["key"])
        self._certificate = kept["certificate"]
        self._url = self._settings.address or f"https://{_bracketed(self._jobs.address())}:{self._door.port}"

    async def close(self) -> None:
        await self._door.close()

    def access(self, record: Record) -> dict[str, Any]:
        """How the burst's folder is reached from elsewhere."""
        return {"url": self._url, "certificate": self._certificate, "token": self.token(record), "burst": record.id}

    def token(self, record: Record) -> str:
        file = self._bursts.folder_of(record).path / TOKEN
        try:
            return file.read_text()
        except FileNotFoundError:
            token = secrets.token_urlsafe(32)
            with open(file, "w", opener=burst.private) as out:
                out.write(token)
            return token

    def _open_door(self, certificate: str, key: str) -> None:
        root, before = self._bursts.root, 0
        files = root / "door.crt", root / "door.key"
        for file, text in zip(files, (certificate, key), strict=True):
            with open(file, "w", opener=burst.private) as out:
                out.write(text)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # ranks that run look for the gateway where it was
            before = int(burst.read_json(root / "door.json")["port"])
        try:
            self._door.open("", self._settings.port or before, *files)
        except OSError:
            if self._settings.port or not before:
                raise
            self._door.open("", 0, *files)
        burst.write_json(root / "door.json", {"port": self._door.port})

    def _make_certificate(self) -> dict[str, str]:
        made, key = certificate.make(self._owner)
        return {"certificate": made, "key": key}


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
