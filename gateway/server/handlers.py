"""``/api/kernels`` and ``/api/sessions``: what Jupyter clients ask of a server, checked before anything is started.

It must never pass a request's environment on other than as an argument, and never answer 500 for something a client sent.
"""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.services.kernels.handlers import _kernel_action_regex, _kernel_id_regex
from jupyter_server.services.sessions.handlers import _session_id_regex
from jupyter_server.utils import url_path_join

from ..protocol.errors import BadRequest, ElasticError
from . import bodies
from .answers import Handler, rest


def check_owner(handler: Handler, wanted: bodies.StartBody) -> None:
    """Nobody is given somebody else's kernel by its id, nor is whoever a front end names."""
    kernels = handler.kernel_manager
    if wanted.kernel_id is None or wanted.kernel_id not in kernels:
        return
    owner = kernels.user_of(wanted.kernel_id)
    if not handler.mine(owner) or wanted.env.get("KERNEL_USERNAME", owner) != owner:
        raise ElasticError(
            "The kernel with that id is somebody else's: leave kernel_id out, and the gateway makes one.", reason="forbidden"
        )


class KernelsHandler(Handler):
    """``GET``: all kernels. ``POST``: start one; it is answered while the kernel still starts."""

    @rest
    async def get(self) -> None:
        kernels = await ensure_async(self.kernel_manager.list_kernels())
        self.answer([model for model in kernels if self.mine(self.kernel_manager.user_of(model["id"]))])

    @rest
    async def post(self) -> None:
        wanted = bodies.start_body(self.body(empty=True), self.kernel_manager.client_envs)
        if wanted.ignored:
            self.log.info("Variables that a client sent and that no setting lets in: %s", ", ".join(wanted.ignored[:20]))
        check_owner(self, wanted)
        kernel_id = await self.kernel_manager.start_kernel(
            kernel_name=wanted.name, path=wanted.path, kernel_id=wanted.kernel_id, env=self.claimed(wanted.env)
        )
        self.set_header("Location", url_path_join(self.base_url, "api", "kernels", kernel_id))
        self.answer(self.kernel_manager.kernel_model(kernel_id), 201)


class KernelHandler(Handler):
    """One kernel: ``GET`` its model, ``DELETE`` to end it."""

    @rest
    async def get(self, kernel_id: str) -> None:
        self.answer(self.kernel_manager.kernel_model(kernel_id))

    @rest
    async def delete(self, kernel_id: str) -> None:
        await self.kernel_manager.shutdown_kernel(kernel_id)
        self.set_status(204)
        self.finish()


class KernelActionHandler(Handler):
    """``POST .../interrupt`` (204) and ``.../restart`` (the model, once the kernel answers again)."""

    @rest
    async def post(self, kernel_id: str, action: str) -> None:
        if action == "interrupt":
            await self.kernel_manager.interrupt_kernel(kernel_id)
            self.set_status(204)
            self.finish()
        else:
            await self.kernel_manager.restart_kernel(kernel_id)
            self.answer(self.kernel_manager.kernel_model(kernel_id))


class SessionsHandler(Handler):
    """Which notebook has which kernel. ``POST`` finds the session of a path, or makes it and its kernel."""

    auth_resource = "sessions"

    @rest
    async def get(self) -> None:
        self.answer([model for model in await self.session_manager.list_sessions() if self.mine(self._user_of(model))])

    def _user_of(self, model: dict[str, Any]) -> str:
        return self.kernel_manager.user_of(model["kernel"]["id"])

    async def _found(self, path: str, user: str | None) -> dict[str, Any] | None:
        """The session of a path: of two users each has their own."""
        if user is None:
            exists = await self.session_manager.session_exists(path=path)
            return await self.session_manager.get_session(path=path) if exists else None
        models = [model for model in await self.session_manager.list_sessions() if model["path"] == path]
        return next((model for model in models if self._user_of(model) == user), None)

    @rest
    async def post(self) -> None:
        wanted = bodies.session_body(self.body(), self.kernel_manager.client_envs)
        if wanted.path is None or wanted.type is None:
            raise BadRequest(f"{'path' if wanted.path is None else 'type'} is missing: a session needs a path and a type.")
        manager, kernel = self.session_manager, wanted.kernel or bodies.StartBody()
        check_owner(self, kernel)
        env = self.claimed(kernel.env)
        model = await self._found(wanted.path, env.get("KERNEL_USERNAME"))
        if model is None:
            model = await manager.create_session(
                path=wanted.path, name=wanted.name, type=wanted.type, kernel_name=kernel.name, kernel_id=kernel.kernel_id, env=env
            )
        self.set_header("Location", url_path_join(self.base_url, "api", "sessions", model["id"]))
        self.answer(model, 201)


class SessionHandler(Handler):
    """One session: ``PATCH`` renames it or gives it another kernel, ``DELETE`` ends its kernel too."""

    auth_resource = "sessions"

    @rest
    async def get(self, session_id: str) -> None:
        self.answer(await self.session_manager.get_session(session_id=session_id))

    @rest
    async def patch(self, session_id: str) -> None:
        wanted = bodies.session_body(self.body(), self.kernel_manager.client_envs)
        manager, kernels = self.session_manager, self.kernel_manager
        before = await manager.get_session(session_id=session_id)
        changes = {name: value for name in ("path", "name", "type") if (value := getattr(wanted, name)) is not None}
        if wanted.kernel is not None and wanted.kernel.kernel_id is not None:
            if wanted.kernel.kernel_id not in kernels:
                raise BadRequest("There is no kernel with that id; list them with GET /api/kernels.")
            check_owner(self, wanted.kernel)
            changes["kernel_id"] = wanted.kernel.kernel_id
        elif wanted.kernel is not None and wanted.kernel.name is not None:
            changes["kernel_id"] = await manager.start_kernel_for_session(
                session_id,
                path=before["path"],
                name=before["name"],
                type=before["type"],
                kernel_name=wanted.kernel.name,
                env=self.claimed(wanted.kernel.env),
            )
        await manager.update_session(session_id, **changes)
        model = await manager.get_session(session_id=session_id)
        if model["kernel"]["id"] != before["kernel"]["id"]:
            ending = asyncio.ensure_future(kernels.shutdown_kernel(before["kernel"]["id"]))
            ending.add_done_callback(lambda done: done.cancelled() or done.exception())  # logged where it happened
        self.answer(model)

    @rest
    async def delete(self, session_id: str) -> None:
        try:
            await self.session_manager.delete_session(session_id)
        except KeyError:
            raise ElasticError("The kernel was gone before its session.", reason="no_such_kernel") from None
        self.set_status(204)
        self.finish()


class ShutdownHandler(Handler):
    """``POST /api/shutdown`` ends the server, and its kernels too if the body says ``{"kernels": true}``."""

    auth_resource = "server"

    @rest
    async def post(self) -> None:
        kernels = self.body(empty=True).get("kernels", False)
        if not isinstance(kernels, bool):
            raise BadRequest("kernels must be true (end all kernels too) or false (they go on, and the next gateway finds them).")
        ended = len(self.kernel_manager.list_kernel_ids()) if kernels else 0
        if kernels:
            await self.kernel_manager.end_all()
        self.log.info("Asked to stop by POST /api/shutdown.")
        self.answer({"ended": ended})
        self.serverapp.stop()  # type: ignore[union-attr]


default_handlers = [
    (r"/api/kernels", KernelsHandler),
    (rf"/api/kernels/{_kernel_id_regex}", KernelHandler),
    (rf"/api/kernels/{_kernel_id_regex}/{_kernel_action_regex}", KernelActionHandler),
    (r"/api/sessions", SessionsHandler),
    (rf"/api/sessions/{_session_id_regex}", SessionHandler),
    (r"/api/shutdown", ShutdownHandler),
]
