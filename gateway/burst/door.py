"""Where kernels and ranks in pods reach the folders of their bursts: HTTPS with a certificate of the gateway's own, a token for each burst.

Files go to disk and come from disk piece by piece. It must never unpickle one, hold a whole one in memory, or let a token of one burst
touch another.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets

from ..protocol import burst
from ..protocol.errors import BadRequest, ElasticError

log = logging.getLogger(__name__)

PIECE = 1 << 20
WORDS = 20 << 20  # bytes of a journal at once, at most: more than anything that is displayed
FROM_KERNEL = re.compile(r"request\.json|capsule(\.sizes)?")
FROM_RANKS = re.compile(r"(?:out|failed)/(?P<rank>[0-9]{1,7})(\.sizes)?|state\.[0-9]{1,9}\.[0-9]{1,9}")
FULL = "not_kept"  # reason


class House(Protocol):
    """What is behind the door: bursts by their ids."""

    def token(self, burst_id: str) -> str:
        """ "" where there is none such."""

    def folder(self, burst_id: str) -> Path: ...

    def is_new(self, burst_id: str) -> bool:
        """Its kernel still brings what it needs."""

    def most_ranks(self, burst_id: str) -> int:
        """Numbers of its ranks are below this."""

    async def plan(self, burst_id: str, rank: int, address: str, pod: str) -> dict[str, Any]:
        """What that rank, whose pod has this address and says that it has this name, is to run: ``plan``, and ``number`` where it is one
        of pods that come and go; {}: not yet. Cancelled where nobody waits for it any more. Raises ``ElasticError``."""

    def words(self, burst_id: str, rank: int, since: int, data: bytes) -> dict[str, Any]:
        """Raises ``ElasticError``."""


class Door:
    """Listens on ``port`` (0: any) from ``open`` to ``close``. ``most``: bytes of one file."""

    def __init__(self, house: House, most: int) -> None:
        self._app = web.Application(
            [(r"/api/bursts/(?P<which>[0-9a-f]{16})/(?P<rest>.*)", _Handler, {"house": house})], log_function=lambda handler: None
        )
        self._most = most
        self._server: HTTPServer | None = None
        self.port = 0

    def open(self, ip: str, port: int, certificate: Path, key: Path) -> None:
        """Raises ``OSError``."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        sockets = bind_sockets(port, ip)
        self.port = sockets[0].getsockname()[1]
        self._server = HTTPServer(self._app, ssl_options=context, chunk_size=PIECE, max_body_size=self._most, idle_connection_timeout=120)
        self._server.add_sockets(sockets)

    async def close(self) -> None:
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()


@web.stream_request_body
class _Handler(web.RequestHandler):
    """One request; what it is for is said by ``rest``."""

    def initialize(self, house: House) -> None:
        self._house = house
        self._file: Any = None
        self._draft: Path | None = None
        self._body = bytearray()
        self._waits: asyncio.Future[Any] | None = None

    def compute_etag(self) -> None:
        return None

    async def prepare(self) -> None:
        which, self._rest = self.path_kwargs["which"], self.path_kwargs["rest"]
        token = self._house.token(which)
        sent = self.request.headers.get("Authorization", "").removeprefix("token ").encode("utf-8", "replace")
        if not token or not hmac.compare_digest(sent, token.encode()):
            self._refuse(403, ElasticError("There is no such burst, or not for you.", reason="forbidden"))
            return
        if self.request.method == "PUT":
            name = self._name()
            if name is None or not self._may_write(which, name):
                self._refuse(403, ElasticError("That file is not to be written now.", reason="forbidden"))
                return
            try:
                self._begin(self._house.folder(which) / name)
            except OSError as exc:
                self._no_room(exc)

    def _may_write(self, which: str, name: str) -> bool:
        """A burst's token is no key to the whole disk."""
        found = FROM_RANKS.fullmatch(name)
        if found is None:
            return self._house.is_new(which)
        return found["rank"] is None or int(found["rank"]) < self._house.most_ranks(which)

    def _begin(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._draft = path.with_name(f"{path.name}.{id(self):x}.new")
        self._file = open(self._draft, "wb", buffering=0, opener=burst.private)  # noqa: SIM115 - until the last chunk is here

    def data_received(self, chunk: bytes) -> None:
        if self._finished:
            return
        if self._file is None:
            if len(self._body) + len(chunk) > WORDS:
                self._refuse(413, BadRequest("That is too much at once.", reason="too_large"))
                return
            self._body += chunk
            return
        try:
            view = memoryview(chunk)
            while view:
                view = view[self._file.write(view) :]
        except OSError as exc:
            self._no_room(exc)

    async def put(self, which: str, rest: str) -> None:
        if self._draft is not None and self._file is not None:
            self._file.close()
            os.replace(self._draft, self._house.folder(which) / str(self._name()))
            self._draft = None
        self._say({})

    async def get(self, which: str, rest: str) -> None:
        await self._answer(self._get, which)

    async def post(self, which: str, rest: str) -> None:
        await self._answer(self._post, which)

    def on_finish(self) -> None:
        self._drop()

    def on_connection_close(self) -> None:
        self._drop()
        if self._waits is not None:
            self._waits.cancel()

    # inside

    async def _get(self, which: str) -> None:
        if rank := re.fullmatch(r"ranks/([0-9]{1,7})/plan", self._rest):
            await self._tell_plan(which, int(rank[1]))
            return
        folder, name = self._house.folder(which), self._name()
        if self._rest == "files":
            found = [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]
            self._say({"names": [each for each in found if FROM_RANKS.fullmatch(each)]})
        elif name is None or not (folder / name).is_file():
            self._refuse(404, ElasticError(f"There is no {self._rest[:70]!r} of this burst.", reason="no_such_burst"))
        else:
            await self._send(folder / name)

    async def _tell_plan(self, which: str, rank: int) -> None:
        try:
            address = str(ip_address(self.get_query_argument("address", "")))
        except ValueError:
            raise BadRequest("A rank says at which address its pod is.") from None
        self._waits = asyncio.ensure_future(self._house.plan(which, rank, address, self.get_query_argument("pod", "")))
        try:
            answer = await self._waits
        except asyncio.CancelledError:
            return  # its pod is gone
        self._say(answer)

    async def _post(self, which: str) -> None:
        rank, since = re.fullmatch(r"ranks/([0-9]{1,7})/words", self._rest), self.get_query_argument("since", "")
        if rank is None or not re.fullmatch(r"[0-9]{1,15}", since):
            raise BadRequest("Words are sent to ranks/N/words?since=BYTES.")
        self._say(self._house.words(which, int(rank[1]), int(since), bytes(self._body)))

    async def _answer(self, method: Callable[[str], Awaitable[None]], which: str) -> None:
        try:
            await method(which)
        except ElasticError as exc:
            self._refuse(404 if exc.reason == "no_such_burst" else 409, exc)

    async def _send(self, path: Path) -> None:
        self.set_header("Content-Type", "application/octet-stream")
        with path.open("rb") as file:
            self.set_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            try:
                while piece := file.read(PIECE):
                    self.write(piece)
                    await self.flush()
                    await asyncio.sleep(0)  # others are served between two pieces
            except StreamClosedError:
                return
        self.finish()

    def _name(self) -> str | None:
        name = self._rest.removeprefix("files/")
        return name if name != self._rest and (FROM_KERNEL.fullmatch(name) or FROM_RANKS.fullmatch(name)) else None

    def _say(self, value: dict[str, Any]) -> None:
        if not self._finished:
            self.set_header("Content-Type", "application/json")
            self.finish(json.dumps(value))

    def _refuse(self, status: int, error: ElasticError) -> None:
        if not self._finished:
            self._drop()
            self.set_status(status)
            self.set_header("Content-Type", "application/json")
            self.finish(json.dumps(error.to_json()))

    def _no_room(self, exc: OSError) -> None:
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
        told = "The gateway's volume for bursts is full (Bursts.folder)." if full else "The gateway can't write there; its log says more."
        log.warning("a file of a burst can't be written: %s", exc)
        self._refuse(507, ElasticError(told, reason=FULL))

    def _drop(self) -> None:
        """What has not come whole."""
        if self._file is not None:
            self._file.close()
        if self._draft is not None:
            self._draft.unlink(missing_ok=True)
            self._draft = None

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self._say({"message": "The gateway failed; its log says more.", "reason": "unhandled"})
