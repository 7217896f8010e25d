"""Who may come in, and who they are: the gateway's own token (jupyter_server's, compared in constant time; where nobody has set one, it
is made once and kept), the tokens of a users file, and those of a JupyterHub.

It must never write a token into anything but a file that its user alone can read, nor tell by its timing how much of one was right.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from jupyter_server.auth.identity import PasswordIdentityProvider, User
from tornado import web
from traitlets import Bool, Unicode, default

from ..protocol.errors import SettingError
from .hub import Hub
from .people import People, Person

MAX_TOKEN = 4096  # bytes; ours have 48


class ElasticIdentityProvider(PasswordIdentityProvider):
    """The stock provider compares tokens letter by letter, and takes an empty token file for "everybody may come in".

    Whoever has the gateway's own token (or password) may do everything, and says by KERNEL_USERNAME whose kernels they are.
    """

    users_file = Unicode(
        "",
        help="""A YAML file with the users who may come in, each with the hash of a token: `ana: {token: "sha256:...", groups: [students]}`,
        and `admin: true` or `front_end: true` where it is so. It is read again when it has changed. "", the default: only the
        gateway's own token counts.""",
    ).tag(config=True)

    hub = Bool(
        False,
        help="""Whether the tokens of a JupyterHub count: it is asked whose they are, with the settings of `HubAuth` (`c.HubAuth.api_url`,
        `c.HubAuth.access_scopes`) or the environment that it gives its services. Its admins are admins here, its groups are groups of
        the policy. False, the default.""",
    ).tag(config=True)

    on_groups: Callable[..., None] = staticmethod(lambda groups, keep=False: None)  # told who is in which groups; ``keep``: a Hub says so

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._people = People(self.users_file, lambda groups: self.on_groups(groups)) if self.users_file else None
        self._hub = Hub(self) if self.hub else None

    @property
    def auth_enabled(self) -> bool:
        return bool(super().auth_enabled or self._people is not None or self._hub is not None)

    def tell_groups(self) -> None:
        """Who is in which groups, as far as the users file says so."""
        if self._people is not None:
            self.on_groups(self._people.groups())

    async def get_user_token(self, handler: web.RequestHandler) -> User | None:
        """Raises ``HTTPError`` 503 where only a JupyterHub that doesn't answer could say."""
        given = super().get_token(handler) or ""
        if given and len(given) <= MAX_TOKEN and not self._matched(given):
            person = self._people.by_token(given) if self._people is not None else None
            if person is None and self._hub is not None:
                person = await self._hub.by_token(given)
                if person is not None:
                    self.on_groups({person.username: person.groups}, keep=True)
            return person
        return await super().get_user_token(handler)

    def generate_anonymous_user(self, handler: web.RequestHandler) -> User:
        return _holder(super().generate_anonymous_user(handler))

    def set_login_cookie(self, handler: web.RequestHandler, user: User) -> None:
        """Named users show their token each time: a cookie would outlive it."""
        if not getattr(user, "named", False):
            super().set_login_cookie(handler, user)

    def user_from_cookie(self, cookie_value: str) -> User | None:
        return _holder(super().user_from_cookie(cookie_value))

    @default("token")
    def _token_default(self) -> str:
        file = os.environ.get("JUPYTER_TOKEN_FILE")
        if os.environ.get("JUPYTER_TOKEN") or not file:
            return str(super()._token_default())
        self.token_generated = False
        try:
            token = Path(file).read_text().strip()
        except (OSError, ValueError) as exc:
            why = getattr(exc, "strerror", None) or type(exc).__name__
            raise SettingError(f"The token can't be read from {file}, which JUPYTER_TOKEN_FILE names: {why}.") from None
        if not token:
            raise SettingError(f"{file}, which JUPYTER_TOKEN_FILE names, is empty: write a token into it, or unset the variable.")
        return token

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


def _holder(user: User | None) -> User | None:
    """Of the gateway's own token."""
    return user and Person(**asdict(user), admin=True, front_end=True, named=False)


def kept_token(file: Path, new: str, say: Callable[[str], object] = lambda text: None) -> str:
    """The token in ``file``, so that who was connected to an earlier gateway of this name gets in again; ``new``, kept there, where
    there is none that can be used, and ``say`` is told why. Whoever removes the file gets another at the next start. Never waits.
    Raises ``OSError``."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
        with open(fd, "rb") as kept:
            token, why = _usable(kept)
        if token:
            return token
        say(f"The token kept in {file} can't be used: {why}. A new one takes its place.")
        file.unlink()
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as kept:
            kept.write(f"{new}\n")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return new


def _usable(kept: BinaryIO) -> tuple[str, str]:
    """``(token, "")``, or ``("", why there is none)``."""
    seen = os.fstat(kept.fileno())
    if not stat.S_ISREG(seen.st_mode):
        return "", "it is no plain file"
    if seen.st_mode & 0o077:
        return "", "others can read it"
    try:
        token = kept.read(MAX_TOKEN + 1).decode().strip()
    except UnicodeDecodeError:
        return "", "it isn't text"
    if not token:
        return "", "it is empty"
    if len(token) > MAX_TOKEN or not token.isprintable():
        return "", "it isn't one line"
    return token, ""
