"""The contents manager of a gateway: there are no contents. Notebooks live with the user's own server.

jupyter_server can't do without one. It must never read or write a file.
"""

from __future__ import annotations

from typing import Any, NoReturn

from jupyter_server.services.contents.manager import AsyncContentsManager
from tornado import web


class NoContents(AsyncContentsManager):
    """Holds nothing and accepts nothing; kernels start in the kernels' own root folder."""

    def info_string(self) -> str:
        return "A gateway: it serves kernels, no notebooks."

    def get_extra_handlers(self) -> list[Any]:
        return []  # the stock ones serve files

    def get_kernel_path(self, path: str, model: Any = None) -> str:
        """The folder part of a session's path, which the kernel manager turns into a working folder where it exists."""
        return path.rpartition("/")[0] if path else ""

    async def dir_exists(self, path: str) -> bool:
        return path.strip("/") == ""

    async def file_exists(self, path: str = "") -> bool:
        return False

    async def is_hidden(self, path: str) -> bool:
        return False

    async def get(self, path: str, *args: Any, **kwargs: Any) -> NoReturn:
        raise web.HTTPError(404, "A gateway holds no files: open the notebook in the server that this gateway is connected to.")

    async def save(self, model: dict[str, Any], path: str) -> NoReturn:
        await self.get(path)

    async def delete_file(self, path: str, allow_non_empty: bool = False) -> NoReturn:
        await self.get(path)

    async def rename_file(self, old_path: str, new_path: str) -> NoReturn:
        await self.get(old_path)
