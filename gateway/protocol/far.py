"""A burst's folder that lies at the gateway, as its kernel and its ranks reach it from their pods: by HTTPS.

The gateway's certificate is pinned, and the burst's own token is sent with each request; both came on a way that is private already. It
must never hold a whole file in memory, nor speak to anybody with another certificate.
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, Optional
from urllib.parse import urlsplit

from . import burst
from .errors import BrokerUnavailable, ElasticError

PIECE = 1 << 20  # bytes sent and read at once
ANSWER_SECONDS = 60.0  # for one answer, or for a piece of it; the gateway leaves no question open for longer
AGAIN_SECONDS = 0.5  # between two tries to reach a gateway that is away

Body = Callable[[], Iterable[Any]]  # made anew for each try


class FarFolder:
    """``access``: what the gateway says of it: ``url``, ``certificate`` (PEM), ``token``, ``burst``. ``patience``: seconds for which a
    gateway that is away is tried again. For one thread at a time."""

    def __init__(self, access: dict[str, Any], patience: float = 60.0) -> None:
        self._url, self._token, self._burst = urlsplit(access["url"]), access["token"], access["burst"]
        self._patience = patience
        self._ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        self._ssl.check_hostname = False  # it is this one certificate, whatever the gateway's address is
        self._ssl.load_verify_locations(cadata=access["certificate"])
        self._connection: Optional[http.client.HTTPSConnection] = None

    def put_buffers(self, name: str, buffers: Sequence[burst.Buffer]) -> None:
        """As ``burst.write_buffers``; no copy is made of them. Raises ``ElasticError``."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        sizes = [view.nbytes for view in views]
        places, end = burst.places_of(sizes)
        self.put_json(f"{name}.sizes", {"sizes": sizes})
        self._ask("PUT", f"files/{name}", lambda: _laid_out(views, places, end), end)

    def put_file(self, name: str, path: Path) -> None:
        """Raises ``ElasticError``, ``OSError`` where it can't be read."""
        self._ask("PUT", f"files/{name}", lambda: _pieces(path), path.stat().st_size)

    def put_json(self, name: str, value: Any) -> None:
        data = json.dumps(value).encode()
        self._ask("PUT", f"files/{name}", lambda: [data], len(data))

    def get(self, name: str, target: Path) -> None:
        """Into a file of this user alone. Raises ``ElasticError``, ``OSError`` where it can't be written."""
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

        def keep(response: http.client.HTTPResponse) -> None:
            with open(target, "wb", opener=burst.private) as file:
                while piece := response.read(PIECE):
                    file.write(piece)

        self._ask("GET", f"files/{name}", take=keep)

    def own_address(self) -> str:
        """Of this pod, as it is on the way to the gateway. Raises ``ElasticError``."""
        host, port = self._url.hostname or "", self._url.port or 443
        end = time.monotonic() + self._patience
        while True:
            try:
                family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
                with socket.socket(family, kind) as line:
                    line.connect(address)  # sends nothing
                    return str(line.getsockname()[0]).partition("%")[0]
            except OSError as exc:
                if time.monotonic() > end:
                    raise BrokerUnavailable(f"There is no way to the gateway at {self._url.netloc} ({exc}).") from None
            time.sleep(AGAIN_SECONDS)

    def names(self) -> list[str]:
        """Of all files that are there."""
        return list(self.ask("GET", "files")["names"])

    def ask(self, method: str, path: str, data: bytes = b"") -> dict[str, Any]:
        """The answer, {} where it is empty. Raises ``ElasticError``: reason ``BrokerUnavailable.reason`` where the gateway is away."""
        answer: dict[str, Any] = {}

        def read(response: http.client.HTTPResponse) -> None:
            text = response.read()
            answer.update(json.loads(text) if text else {})

        self._ask(method, path, (lambda: [data]) if data else None, len(data), read)
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # inside

    def _ask(
        self, method: str, path: str, body: Optional[Body] = None, size: int = 0,
        take: Callable[[http.client.HTTPResponse], None] = lambda response: None,
    ) -> None:  # fmt: skip
        end = time.monotonic() + self._patience
        while True:
            try:
                self._try(method, path, body, size, take)
                return
            except ssl.SSLCertVerificationError:
                raise BrokerUnavailable("Who answers in the gateway's place has another certificate: it is another gateway now.") from None
            except (OSError, http.client.HTTPException) as exc:
                self.close()
                if isinstance(exc, OSError) and (exc.filename is not None or exc.errno in (errno.ENOSPC, errno.EDQUOT)):
                    raise  # our own file, not the line
                if time.monotonic() > end:
                    raise BrokerUnavailable(f"The gateway can't be reached at {self._url.netloc} ({exc or type(exc).__name__}).") from None
            except BaseException:
                self.close()  # in the middle of a request, perhaps
                raise
            time.sleep(AGAIN_SECONDS)

    def _try(
        self, method: str, path: str, body: Optional[Body], size: int, take: Callable[[http.client.HTTPResponse], None]
    ) -> None:  # fmt: skip
        if self._connection is None:
            host, port = self._url.hostname or "", self._url.port
            self._connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=self._ssl)
        headers = {"Authorization": f"token {self._token}", "Content-Length": str(size)}
        where = f"{self._url.path.rstrip('/')}/api/bursts/{self._burst}/{path}"
        try:
            self._connection.request(method, where, body=None if body is None else iter(body()), headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has said no before it had heard all: that answer counts
        response = self._connection.getresponse()
        if response.status >= 400:
            said = response.read(PIECE)
            self.close()
            raise _refused(response.status, said)
        take(response)
        response.read()


def _refused(status: int, said: bytes) -> ElasticError:
    try:
        told = json.loads(said)
        return ElasticError(str(told["message"]), reason=str(told["reason"]))
    except (ValueError, KeyError, TypeError):
        return BrokerUnavailable(f"The gateway answered with HTTP {status}; its log says more.")


def _laid_out(views: Sequence[memoryview], places: Sequence[int], end: int) -> Iterator[Any]:
    at = 0
    for place, view in zip(places, views):
        if place > at:
            yield bytes(place - at)
        for start in range(0, view.nbytes, PIECE):
            yield view[start : start + PIECE]
        at = place + view.nbytes
    if end > at:
        yield bytes(end - at)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
