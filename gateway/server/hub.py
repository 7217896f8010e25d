"""Who somebody is by the word of a JupyterHub: it is asked whose token this is, and remembers the answer for some minutes.

``HubAuth`` is JupyterHub's own. It must never ask about a token that is known here, nor let anybody in while the Hub doesn't answer.
"""

from __future__ import annotations

from typing import Any

from tornado import web
from traitlets.config import Configurable

from ..protocol.errors import SettingError
from .people import MAX_NAME, Person


def settings() -> list[type[Configurable]]:
    """Whose settings count with a Hub; none without its package."""
    try:
        from jupyterhub.services.auth import HubAuth
    except ImportError:
        return []
    return [HubAuth]


class Hub:
    """``HubAuth``'s settings count (``c.HubAuth.api_url``, ``access_scopes``, ``cache_max_age``), and for a service that a Hub has started
    its environment (``JUPYTERHUB_API_TOKEN`` and the like). Raises ``SettingError``."""

    def __init__(self, parent: Configurable) -> None:
        try:
            from jupyterhub.services.auth import HubAuth, check_scopes
        except ImportError:
            raise SettingError(
                "ElasticIdentityProvider.hub needs JupyterHub's own package beside the gateway: install 'jupyter-elastic-gateway[hub]'."
            ) from None
        self._auth, self._fits = HubAuth(parent=parent), check_scopes

    async def by_token(self, token: str) -> Person | None:
        """Raises ``HTTPError`` 503 where the Hub doesn't answer."""
        try:
            model: dict[str, Any] | None = await self._auth.user_for_token(token, sync=False)
        except web.HTTPError:
            raise web.HTTPError(503, "The JupyterHub that knows your token doesn't answer: try again in a while.") from None
        if not model or not model.get("name"):
            return None
        if self._auth.access_scopes and not self._fits(self._auth.access_scopes, set(model.get("scopes", ()))):
            return None
        groups = tuple(str(group) for group in model.get("groups") or ())
        return Person(str(model["name"])[:MAX_NAME], admin=bool(model.get("admin")), groups=groups)
