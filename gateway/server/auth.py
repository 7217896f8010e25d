"""Who may come in: jupyter_server's token, compared in constant time; where nobody has set one, it is made once and kept.

It must never write a token into anything but a file that its user alone can read, nor tell by its timing how much of one was right.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from jupyter_server.auth.identity import PasswordIdentityProvider, User
from tornado import web
from traitlets import default

from ..protocol.errors import SettingError

MAX_TOKEN = 4096  # bytes; ours have 48


class ElasticIdentityProvider(PasswordIdentityProvider):
    """The stock provider compares tokens letter by letter, and takes an empty token file for "everybody may come in"."""

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
