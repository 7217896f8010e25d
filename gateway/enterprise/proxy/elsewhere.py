"""The elastic gateway as an Enterprise Gateway sees it: its address, and the few calls of its API that a kernel's life takes.

Nothing here may block the event loop but ``knows``, which says so. It must never log or show the token.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from ...protocol.websocket import ELASTIC, V1

CALL_SECONDS = 30.0  # for an answer of the gateway
PING_SECONDS = 120.0  # a loop that is busy with a flood of output answers late
MAX_MESSAGE_BYTES = 512 << 20  # of one message, as in the gateway
SETTINGS = {"url": "ELASTIC_GATEWAY_URL", "token_file": "ELASTIC_GATEWAY_TOKEN_FILE", "ca_file": "ELASTIC_GATEWAY_CA_FILE"}


class Refused(Exception):
    """What the elastic gateway, or the way to it, says against a request. ``status``: of its answer, 0 where there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Elsewhere:
    """``url``: of the elastic gateway. ``token_file``: holds its token, read anew for each request; "": it wants none. ``ca_file``: of who
    signed its certificate; "": those that this machine trusts."""

    url: str
    token_file: str = ""
    ca_file: str = ""

    async def start(self, kernel_id: str, name: str, env: Mapping[str, str]) -> None:
        """Begin to start a kernel. Raises ``Refused``."""
        await self._call("POST", "/api/kernels", {"name": name, "env": {**env, "KERNEL_ID": kernel_id}})

    async def state(self, kernel_id: str) -> tuple[str, str]:
        """``(execution_state, reason)``. Raises ``Refused``, with 404 where there is no such kernel."""
        model = await self._call("GET", f"/api/kernels/{quote(kernel_id)}")
        return str(model.get("execution_state", "")), str(model.get("reason") or "")

    async def interrupt(self, kernel_id: str) -> None:
        await self._call("POST", f"/api/kernels/{quote(kernel_id)}/interrupt")

    async def end(self, kernel_id: str) -> None:
        """It is gone afterwards; that it was gone before is no error."""
        try:
            await self._call("DELETE", f"/api/kernels/{quote(kernel_id)}")
        except Refused as exc:
            if exc.status != 404:
                raise

    def knows(self, kernel_id: str, seconds: float = 5.0) -> bool:
        """Whether there is such a kernel; also where the gateway doesn't answer, as it may come back. Blocks for so long at most."""
        request = Request(f"{self.url.rstrip('/')}/api/kernels/{quote(kernel_id)}", headers=self._headers())
        try:
            with urlopen(request, timeout=seconds, context=self._tls()):
                return True
        except HTTPError as exc:
            return exc.code != 404
        except (URLError, OSError):
            return True

    def dialler(self, kernel_id: str, session_id: str) -> Callable[[int | None], Awaitable[WebSocketClientConnection]]:
        """For a ``Line``."""

        async def dial(after: int | None) -> WebSocketClientConnection:
            query = {"session_id": session_id} | ({} if after is None else {"after": str(after)})
            url = f"ws{self.url.rstrip('/')[4:]}/api/kernels/{quote(kernel_id)}/channels?{urlencode(query)}"
            request = HTTPRequest(url, headers=self._headers(), ssl_options=self._tls(), connect_timeout=10, request_timeout=10)
            found = await websocket_connect(
                request, subprotocols=[ELASTIC, V1], max_message_size=MAX_MESSAGE_BYTES, ping_interval=PING_SECONDS
            )
            assert found.protocol is not None
            found.protocol.set_nodelay(True)  # type: ignore[attr-defined]
            return found

        return dial

    # inside

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        began = time.monotonic()
        request = HTTPRequest(
            self.url.rstrip("/") + path, method=method, headers=self._headers(), ssl_options=self._tls(), request_timeout=CALL_SECONDS,
            body=json.dumps(body or {}) if method == "POST" else None,
        )  # fmt: skip
        try:
            answer = await AsyncHTTPClient().fetch(request)
            told = json.loads(answer.body or b"{}")
            if not isinstance(told, dict):
                raise ValueError
            return told
        except HTTPClientError as exc:
            if exc.code == 599:
                waited = time.monotonic() - began
                raise Refused(f"The elastic gateway at {self.url} has not answered within {waited:.0f} s: look at its log.") from None
            raise Refused(_said(exc), exc.code) from None
        except OSError as exc:
            raise Refused(f"The elastic gateway at {self.url} can't be reached: {exc}. Is it running?") from None
        except ValueError:
            raise Refused(f"What answers at {self.url} is no elastic gateway: check the kernelspec's url.") from None

    def _headers(self) -> dict[str, str]:
        if not self.token_file:
            return {}
        try:
            token = Path(self.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise Refused(f"The token of the elastic gateway can't be read: {exc}") from None
        if not token.isprintable():
            raise Refused(f"{self.token_file} must hold the token of the elastic gateway in one line, and nothing else.")
        return {"Authorization": f"token {token}"}

    def _tls(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https:"):
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as exc:
            raise Refused(f"{self.ca_file} holds no certificates: {exc}") from None


def elsewhere(config: Mapping[str, Any], environment: Mapping[str, str]) -> Elsewhere:
    """By a kernelspec's stanza, and what that leaves out by the environment of Enterprise Gateway. Raises ``Refused``."""
    found = {name: str(config.get(name) or environment.get(variable) or "") for name, variable in SETTINGS.items()}
    if not found["url"].startswith(("http://", "https://")):
        raise Refused("Where the elastic gateway is isn't known: set url in the kernelspec's process_proxy.config, or ELASTIC_GATEWAY_URL.")
    return Elsewhere(**found)


def _said(exc: HTTPClientError) -> str:
    """In the gateway's own words where it has some."""
    try:
        message = json.loads(exc.response.body)["message"] if exc.response is not None else ""
    except (ValueError, KeyError, TypeError):
        message = ""
    return f"The elastic gateway says: {message or exc}"
