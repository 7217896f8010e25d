"""Who may do what: everybody sees what is shared, acts on their own kernels alone, and starts them under their own name; admins do all.

It must never take a client's word for who it is, but that of a front end that the administrator trusts.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from jupyter_core.utils import ensure_async
from jupyter_server.auth.authorizer import Authorizer
from jupyter_server.auth.identity import User
from traitlets import List, Unicode

from ..protocol.errors import ElasticError

USERNAME = "KERNEL_USERNAME"
_OF_KERNEL = re.compile(r"/api/(?:gpu/)?kernels/([^/]+)")
_OF_SESSION = re.compile(r"/api/sessions/([^/]+)")
_OF_BURST = re.compile(r"/api/bursts/([^/]+)")


class ElasticAuthorizer(Authorizer):
    """Own kernels only, and what shows all of them to those who may see it."""

    admins = List(
        Unicode(),
        help="""Names of users who may do everything, besides those whom the users file or the JupyterHub calls admins. []: none, the
        default. Whoever has the gateway's own token may do everything too.""",
    ).tag(config=True)

    async def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:  # type: ignore[override]
        """Of a kernel that isn't there everybody may be told so."""
        if self.all_kernels(user):
            return self._is_admin(user) or resource in ("kernels", "sessions", "bursts") or self._gpu(handler, action, resource)
        path = handler.request.path  # as it is written: a slash in a name is none of the path's
        if match := _OF_KERNEL.search(path):
            return self._owns_kernel(handler, user, unquote(match[1]))
        if match := _OF_SESSION.search(path):
            return await self._owns_session(handler, user, unquote(match[1]))
        if match := _OF_BURST.search(path):
            return self._owns_burst(handler, user, unquote(match[1]))
        if action != "read":
            return resource in ("kernels", "sessions", "bursts")  # to start one
        asked = handler.get_query_argument("kernel", "")
        return not asked or self._owns_kernel(handler, user, asked)

    def all_kernels(self, user: User) -> bool:
        """May act on everybody's: an admin, or a front end that acts for its users."""
        return self._is_admin(user) or bool(getattr(user, "front_end", False))

    def owns(self, user: User, name: str) -> bool:
        """Whether a kernel of the user ``name`` is theirs."""
        return self.all_kernels(user) or user.username == name

    def claims(self, user: User, env: dict[str, str]) -> dict[str, str]:
        """The environment that a kernel is started with: under the name of whoever asks, but for those whose word for it is taken."""
        if self.all_kernels(user):
            named = bool(getattr(user, "named", True)) and not getattr(user, "front_end", False)
            return {USERNAME: user.username, **env} if named else env
        if env.get(USERNAME, user.username) != user.username:
            self.log.info("%s asked for a kernel as %r; it is started as their own.", user.username, env[USERNAME][:80])
        return {**env, USERNAME: user.username}

    def _is_admin(self, user: User) -> bool:
        return bool(getattr(user, "admin", False)) or user.username in self.admins

    def _gpu(self, handler: Any, action: str, resource: str) -> bool:
        """What a front end may do beside kernels: ask, and release and hold."""
        return action == "read" or (resource == "gpu" and bool(_OF_KERNEL.search(handler.request.path)))

    def _owns_kernel(self, handler: Any, user: User, kernel_id: str) -> bool:
        kernel = handler.settings["kernel_manager"]._kernels.get(kernel_id)
        if kernel is None:
            broker = handler.settings.get("elastic_broker")
            link = broker.links.get(kernel_id) if broker is not None else None
            return link is None or link.supervisor.whose_name == user.username
        return kernel.user == user.username

    async def _owns_session(self, handler: Any, user: User, session_id: str) -> bool:
        try:
            model = await ensure_async(handler.settings["session_manager"].get_session(session_id=session_id))
        except Exception:  # there is none, or it can't be read: the handler says which
            return True
        return self._owns_kernel(handler, user, model["kernel"]["id"])

    def _owns_burst(self, handler: Any, user: User, which: str) -> bool:
        """A name is of whoever asks, if they have one of it."""
        for owner in (user.username, None):
            try:
                return bool(handler.bursts.find(which, owner).user == user.username)
            except ElasticError:
                continue
        return True
