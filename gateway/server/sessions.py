"""Which notebook has which kernel, kept over restarts of the gateway in a small file beside the kernels.

It must never put the gateway's own environment into a kernel's.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.services.sessions.sessionmanager import SessionManager


class ElasticSessionManager(SessionManager):
    """Stock sessions, but for the environment, which is the request's alone. A session whose kernel has gone is forgotten when seen."""

    @property
    def connection(self) -> Any:
        new = self._connection is None
        connection = super().connection
        if new:
            connection.execute("PRAGMA synchronous=OFF")  # a session is worth no wait for a disk; a torn file is rebuilt by clients
        return connection

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
        session_id = self.new_session_id()
        if kernel_id is None or kernel_id not in self.kernel_manager:
            kernel_id = await self.start_kernel_for_session(session_id, path, name, type, kernel_name, kernel_id, env)
        return await self.save_session(session_id, path=path, name=name, type=type, kernel_id=kernel_id)  # type: ignore[no-any-return]

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
