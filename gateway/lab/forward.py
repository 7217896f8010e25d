"""The gateway's ``/api/gpu`` and ``/api/bursts`` in the user's Lab server, so that the page in the browser can ask for them there.

Each request goes on under the credentials of ``GatewayClient``; what the gateway answers comes back as it comes. It must never pass on an
address or a method that the page has no use for, nor show the page the gateway's token.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.httputil import parse_response_start_line
from tornado.iostream import StreamClosedError
from tornado.simple_httpclient import SimpleAsyncHTTPClient, _HTTPConnection

KEPT = frozenset({"content-type", "cache-control", "date", "x-accel-buffering"})  # headers of the gateway's that the page is given
ANSWER_WITHIN = 20.0  # seconds, of all but a stream
AWAY = "The gateway does not answer. Its kernels go on; try again when it is back."

_ID = r"[A-Za-z0-9._-]{1,63}"
ROUTES = {
    r"/api/gpu": "GET",
    r"/api/gpu/events": "GET",
    r"/api/gpu/usage": "GET",
    rf"/api/gpu/kernels/{_ID}/(?:release|hold)": "POST",
    r"/api/bursts": "GET",
    rf"/api/bursts/{_ID}": "DELETE",
    rf"/api/bursts/{_ID}/events": "GET",
}


class Fetch(SimpleAsyncHTTPClient):
    """One request, that can be given up; tornado's client reads on until the far end is done."""

    connection: Any = None

    def _connection_class(self) -> Any:
        def connect(*args: Any) -> Any:
            self.connection = _HTTPConnection(*args)
            return self.connection

        return connect

    def give_up(self) -> None:
        stream = getattr(self.connection, "stream", None)
        if stream is not None:
            stream.close()


class ForwardHandler(APIHandler):
    """One address of the gateway's. ``method``: the one that is passed on."""

    auth_resource = "kernels"
    _fetch: Fetch | None = None

    def initialize(self, method: str) -> None:  # type: ignore[override]
        self._method = method

    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self._forward()

    @web.authenticated
    @authorized
    async def post(self) -> None:
        await self._forward()

    @web.authenticated
    @authorized
    async def delete(self) -> None:
        await self._forward()

    def on_connection_close(self) -> None:
        """The page has left."""
        super().on_connection_close()
        if self._fetch is not None:
            self._fetch.give_up()

    async def _forward(self) -> None:
        if self.request.method != self._method:
            raise web.HTTPError(405)
        gateway = GatewayClient.instance()
        path = url_path_join("/", self.request.path[len(self.base_url) :])
        url = url_path_join(gateway.url or "", path) + (f"?{self.request.query}" if self.request.query else "")
        endless = path.endswith("/events")
        ours = {
            "method": self._method,
            "body": self.request.body if self._method == "POST" else None,
            "request_timeout": 0 if endless else ANSWER_WITHIN,
            "header_callback": self._header,
            "streaming_callback": self._piece,
            "follow_redirects": False,
        }
        request = HTTPRequest(url, **(gateway.load_connection_args() | ours))
        self._fetch = Fetch(force_instance=True, max_body_size=1 << 40)
        try:
            await self._fetch.fetch(request, raise_error=False)
        except (OSError, HTTPError, StreamClosedError) as exc:
            if not self._headers_written:
                self.log.info("The gateway didn't answer %s: %s", path, exc)
                self.set_status(503)
                self.set_header("Content-Type", "application/json")
                self.write({"message": AWAY, "reason": "gateway_away"})
        finally:
            self._fetch.close()
        if not self._finished:
            self.finish()

    def _header(self, line: str) -> None:
        """Of the gateway's answer: its first line, each header, an empty line."""
        if line.startswith("HTTP/"):
            self.set_status(parse_response_start_line(line.strip()).code)
            return
        name, _, value = line.partition(":")
        if name.lower() in KEPT:
            self.set_header(name, value.strip())

    def _piece(self, piece: bytes) -> None:
        self.write(piece)
        self.flush()


def handlers(base_url: str) -> list[tuple[str, type[ForwardHandler], dict[str, Any]]]:
    return [(url_path_join(base_url, route), ForwardHandler, {"method": method}) for route, method in ROUTES.items()]
