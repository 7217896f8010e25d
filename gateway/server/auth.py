"""Who may come in: jupyter_server's token, compared in constant time.

It must never write a token anywhere, nor tell by its timing how much of one was right.
"""

from __future__ import annotations

import hmac

from jupyter_server.auth.identity import PasswordIdentityProvider, User
from tornado import web


class ElasticIdentityProvider(PasswordIdentityProvider):
    """The stock provider compares tokens letter by letter."""

    def get_token(self, handler: web.RequestHandler) -> str | None:
        return self._matched(super().get_token(handler))

    def process_login_form(self, handler: web.RequestHandler) -> User | None:
        typed = handler.get_argument("password", default="")
        if self.token and self._matched(typed) and not handler.get_argument("new_password", default=""):
            return self.generate_anonymous_user(handler)
        return self.generate_anonymous_user(handler) if self.hashed_password and self.passwd_check(typed) else None

    def _matched(self, given: str | None) -> str:
        """The token itself where ``given`` is it, else nothing, so that whoever compares after us learns nothing."""
        right = hmac.compare_digest((given or "").encode("utf-8", "replace"), self.token.encode("utf-8", "replace"))
        return self.token if right else ""
