"""Which notebook has which kernel, kept over restarts of the gateway in a small file beside the kernels.

It must never put the gateway's own environment into a kernel's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.services.sessions.sessionmanager import KernelSessionRecord, SessionManager

from ..protocol.errors import ElasticError, cause


class ElasticSessionManager(SessionManager):
    """Stock sessions, but for the environment, which is the request's alone. A session whose kernel has gone is forgotten when seen."""

    @property
    def connection(self) -> Any:
        new = self._connection is None
        connection = super().connection
        if new:
            connection.execute("PRAGMA synchronous=OFF")  # a session is worth no wait for a disk; a torn file is rebuilt by clients
        return connection

    @property
    def cursor(self) -> Any:
        if self._cursor is not None:
            return self._cursor
        with self._kept():
            try:
                return super().cursor
            except sqlite3.Error:
                self._cursor = None  # its table could not be made: the next one tries again
                raise

    async def create_session(  # type: ignore[override]
        self,
        path: str | None = None,
        name: str | None = None,
        type: str | None = None,  # noqa: A002
        kernel_name: str | None = None,
        kernel_id: str | None = None,
        env: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """The model of a new session; its kernel is started unless it exists."""
        session_id, new = self.new_session_id(), kernel_id is None or kernel_id not in self.kernel_manager
        if new:
            kernel_id = await self.start_kernel_for_session(session_id, path, name, type, kernel_name, kernel_id, env)
        try:
            with self._kept():
                return await self.save_session(session_id, path=path, name=name, type=type, kernel_id=kernel_id)  # type: ignore[no-any-return]
        except ElasticError:
            if new:
                await ensure_async(self.kernel_manager.shutdown_kernel(kernel_id, now=True))  # nobody would ever end it
            raise

    async def list_sessions(self) -> list[dict[str, Any]]:
        try:
            return await super().list_sessions()  # type: ignore[no-any-return]
        except ElasticError:  # not even the table could be made, so there was none
            return []

    async def update_session(self, session_id: str, **changes: Any) -> None:
        with self._kept():
            await super().update_session(session_id, **changes)

    async def delete_session(self, session_id: str) -> None:
        """The kernel ends whatever becomes of the file: a session without a kernel is forgotten when seen."""
        try:
            await super().delete_session(session_id)
        except sqlite3.Error as exc:
            self._pending_sessions.remove(KernelSessionRecord(session_id=session_id))
            self.log.warning("A session could not be taken out of %s: %s", self.database_filepath, exc)

    async def row_to_model(self, row: Any, tolerate_culled: bool = False) -> Any:
        """Also where a session whose kernel has gone can't be taken out of the file just now."""
        try:
            return await super().row_to_model(row, tolerate_culled)
        except sqlite3.Error as exc:
            if tolerate_culled:
                return None
            raise KeyError("The session's kernel has gone.") from exc

    async def start_kernel_for_session(  # type: ignore[override]
        self,
        session_id: str,
        path: str | None,
        name: str | None,
        type: str | None,  # noqa: A002
        kernel_name: str | None,
        kernel_id: str | None = None,
        env: dict[str, str] | None = None,
    ) -> str:
        env = {**self.get_kernel_env(path, name), **(env or {})}
        folder = self.contents_manager.get_kernel_path(path or "")
        return await self.kernel_manager.start_kernel(path=folder, kernel_name=kernel_name, kernel_id=kernel_id, env=env)  # type: ignore[no-any-return]

    def get_kernel_env(self, path: str | None, name: str | None = None) -> dict[str, str]:
        return {"JPY_SESSION_NAME": path} if path else {}

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """Around what writes the file. Raises ``ElasticError`` where that is impossible."""
        try:
            yield
        except sqlite3.Error as exc:
            file = Path(self.database_filepath)
            full = exc.sqlite_errorcode == sqlite3.SQLITE_FULL or (file.exists() and not os.statvfs(file).f_bavail)
            why = cause(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), file) if full else f"{exc}: {file}"
            raise ElasticError(f"Which notebook has which kernel can't be written down: {why}.", reason="not_kept") from exc
