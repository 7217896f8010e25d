"""The API server, asked in plain JSON: a handful of verbs, each a coroutine that never blocks the loop.

Objects are the dictionaries that the server speaks; what is decided about them stands elsewhere. This module must never end a pod
without its grace period (a kubelet that is told so gives the GPU away while it is still in use), nor show what a request carried.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from ... import __version__
from . import access
from .decoding import Lines, Turns, decode_list
from .errors import ApiConflict, ApiError, ApiExpired, ApiMissing, ApiUnavailable, from_status

Json = dict[str, Any]
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500  # objects asked for at once
CONNECT, ANSWER = 10.0, 30.0  # seconds for a connection, and for a whole answer
CONNECTIONS = 32  # at most, watches among them: more would shake hands all at once and hold the loop up; the rest wait their turn
LATELY = 10.0  # seconds within which credentials aren't renewed twice
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:_-]*[A-Za-z0-9])?")
_OTHER_UID = re.compile("UID in (the )?precondition")  # the server has two sentences for it


@dataclass(frozen=True)
class Kind:
    """A kind of object as its address has it."""

    group_version: str  # "v1", "batch/v1"
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, part: str | None = None) -> str:
        """Raises ``ValueError`` for what is no name, so that nothing that users type becomes a path."""
        for each in (namespace, name):
            if each is not None and not _NAME.fullmatch(each):
                raise ValueError(f"{each[:80]!r} is not the name of a Kubernetes object.")
        root = "/api" if "/" not in self.group_version else "/apis"
        space = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}/{self.group_version}{space}/{self.plural}" + (f"/{name}" if name else "") + (f"/{part}" if part else "")


PODS = Kind("v1", "pods")
SECRETS = Kind("v1", "secrets")
NODES = Kind("v1", "nodes")
EVENTS = Kind("v1", "events")
CONFIGMAPS = Kind("v1", "configmaps")
LEASES = Kind("coordination.k8s.io/v1", "leases")
JOBS = Kind("batch/v1", "jobs")
WORKLOADS = tuple(Kind(f"kueue.x-k8s.io/{version}", "workloads") for version in ("v1beta2", "v1beta1"))  # newer and older Kueues have
SERVICES = Kind("v1", "services")
NETWORK_POLICIES = Kind("networking.k8s.io/v1", "networkpolicies")


class KubeApi:
    """One API server and our access to it. Every method may raise any ``ApiError``; a cancelled one may have had its effect."""

    watch_seconds = (240, 480)  # a watch is asked for anew after a time between, so that the servers share the load
    stall = 30.0  # seconds longer than that a silent stream is believed
    patience = 20.0  # seconds to wait altogether where the server says "too many requests"

    def __init__(self, found: access.Access, again: Callable[[], Any]) -> None:
        """``again``: finds the access anew. Use ``connect``."""
        self._access, self._again = found, again
        self._renewing, self._renewed = asyncio.Lock(), -LATELY
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60, socket_factory=_socket)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=2**21,
            headers={"User-Agent": f"jupyter-elastic-gateway/{__version__}", "Accept-Encoding": "identity"},
        )  # fmt: skip

    @classmethod
    async def connect(cls, context: str | None = None, kubeconfig: str | None = None) -> KubeApi:
        """The API server of our pod, or of a kubeconfig (``access.find``); it isn't asked anything yet."""

        async def find() -> access.Access:
            return await access.find(context, kubeconfig)

        return cls(await find(), find)

    @property
    def server(self) -> str:
        """Its address, for people."""
        return str(URL(self._access.server).origin())

    def own_address(self) -> str:
        """Of ours, the address from which the server is reached. Raises ``OSError``."""
        url = URL(self._access.server)
        family = socket.AF_INET6 if ":" in (url.host or "") else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((url.host, url.port or 443))  # sends nothing
            return str(way.getsockname()[0])

    async def close(self) -> None:
        """End all requests. No error where it has been closed already."""
        await self._session.close()

    async def create(self, kind: Kind, namespace: str | None, body: Json) -> Json:
        """The object as it was created. Raises ``ApiConflict`` where it exists already."""
        return await self._json("POST", kind, namespace, None, "create", body=body)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Json:
        """Raises ``ApiMissing``."""
        return await self._json("GET", kind, namespace, name, "read")

    async def patch(self, kind: Kind, namespace: str | None, name: str, body: Json | list[Json]) -> Json:
        """The object after a merge patch (a dict; None removes a key) or a JSON patch (a list; ``ApiInvalid`` where a ``test`` fails)."""
        content = "application/json-patch+json" if isinstance(body, list) else "application/merge-patch+json"
        return await self._json("PATCH", kind, namespace, name, "change", body=body, content=content)

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None, grace: int | None = None) -> None:
        """Ask for its end: a pod goes on for its grace period. No error where it, or the one with that ``uid``, is gone.

        ``grace``: seconds instead of the pod's own, at least 1. Raises ``ValueError`` for less.
        """
        if grace is not None and (grace < 0 or (grace == 0 and kind == PODS)):
            raise ValueError(f"A pod is never deleted with a grace period of {grace} s: its GPU would be given away while still in use.")
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._json("DELETE", kind, namespace, name, "delete", body=options)
        except ApiMissing:
            pass
        except ApiConflict as exc:
            if uid is None or not _OTHER_UID.search(str(exc)):
                raise

    async def list(self, kind: Kind, namespace: str | None, selector: str = "", fields: str = "") -> tuple[list[Json], str]:
        """All objects that a label selector and a field selector match, and the resource version to watch from. ``namespace`` None:
        everywhere."""
        items: list[Json] = []
        query = {"limit": str(PAGE)} | _selectors(selector, fields)
        path, doing, restarts = kind.path(namespace), _doing("list", kind, namespace), 0
        while True:
            try:
                async with self._ask("GET", path, doing, query=query) as response:
                    page = await decode_list(await response.read())
            except ApiExpired:  # it took so long that the snapshot is gone
                restarts += 1
                if "continue" not in query or restarts > 3:
                    raise
                items, query = [], {key: value for key, value in query.items() if key != "continue"}
                continue
            except ValueError as exc:
                raise ApiUnavailable(f"The answer of {self.server} can't be read ({exc}): is there a proxy on the way?") from None
            items += page.get("items") or []
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return items, str(meta.get("resourceVersion", ""))
            query["continue"] = meta["continue"]

    async def names(self, kind: Kind, namespace: str | None, selector: str = "") -> set[str]:
        """Of all objects that a label selector matches; what is in them isn't sent."""
        query, doing = _selectors(selector, ""), _doing("list", kind, namespace)
        async with self._ask("GET", kind.path(namespace), doing, query=query, accept=METADATA) as response:
            return {str(each["metadata"]["name"]) for each in self._read(await response.read()).get("items") or ()}

    async def watch(
        self, kind: Kind, namespace: str | None, selector: str, resource_version: str, *, fields: str = "",
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[tuple[str, Json], None]:  # fmt: skip
        """``(type, object)`` of each change after ``resource_version``, bookmarks among them, until the server ends the stream.

        ``on_open`` is called once the server has agreed. Raises ``ApiExpired`` where that version is too old. Close it (``aclosing``).
        """
        seconds = random.randint(*self.watch_seconds)
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), "resourceVersion": resource_version}
        query |= _selectors(selector, fields)
        doing = _doing("watch", kind, namespace)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=seconds + self.stall)
        async with self._ask("GET", kind.path(namespace), doing, query=query, timeout=timeout) as response:
            if on_open is not None:
                on_open()
            lines, turn = Lines(), Turns()
            async for chunk in response.content.iter_any():
                for line in lines.feed(chunk):
                    yield self._event(line, doing)
                    await turn()

    async def log(self, namespace: str, pod: str, container: str | None = None, tail_lines: int = 20, limit_bytes: int = 65536) -> str:
        """The last lines that a container has written, cut after ``limit_bytes``."""
        query = {"tailLines": str(tail_lines), "limitBytes": str(limit_bytes)} | ({"container": container} if container else {})
        path = PODS.path(namespace, pod, "log")
        async with self._ask("GET", path, f"read the log of {pod} in {namespace}", query=query) as response:
            return (await response.read()).decode(errors="replace")

    async def _json(
        self,
        method: str,
        kind: Kind,
        namespace: str | None,
        name: str | None,
        verb: str,
        *,
        body: Any = None,
        content: str = "application/json",
    ) -> Json:
        doing = _doing(verb, kind, namespace, name or (body or {}).get("metadata", {}).get("name"))
        async with self._ask(method, kind.path(namespace, name), doing, body=body, content=content, secret=kind == SECRETS) as response:
            return self._read(await response.read())

    def _read(self, answer: bytes) -> Json:
        try:
            return dict(json.loads(answer))
        except (ValueError, TypeError):
            raise ApiUnavailable(f"The answer of {self.server} can't be read: is there a proxy on the way?") from None

    @asynccontextmanager
    async def _ask(
        self, method: str, path: str, doing: str, *, query: Mapping[str, str] | None = None, body: Any = None,
        content: str = JSON, timeout: aiohttp.ClientTimeout | None = None, secret: bool = False, accept: str = JSON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:  # fmt: skip
        """A response that is no error; its body is the caller's to read."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        timeout = timeout or aiohttp.ClientTimeout(total=ANSWER, sock_connect=CONNECT)
        waited, renewed = 0.0, False
        while True:
            if self._session.closed:
                raise ApiUnavailable(f"The connection to {self.server} has been closed: the gateway is stopping.")
            way = self._access
            headers = await way.headers()
            anonymous = not headers and not way.certificate
            headers["Accept"] = accept
            if data is not None:
                headers["Content-Type"] = content
            url = URL(way.server + path + (f"?{urlencode(query)}" if query else ""), encoded=True)
            with self._told(doing):
                async with self._session.request(
                    method, url, data=data, headers=headers, timeout=timeout, ssl=way.ssl, proxy=way.proxy,
                    server_hostname=way.server_hostname, allow_redirects=False,
                ) as response:  # fmt: skip
                    if response.status < 300:
                        yield response
                        return
                    error = from_status(response.status, await response.read(), doing, secret=secret, anonymous=anonymous)
                    pause = _retry_after(response.headers) * random.uniform(1, 1.2)
            if error.code == 401 and not renewed and await self._renew(way):
                renewed = True
                continue
            if error.code != 429 or waited + pause > self.patience:
                raise error
            waited += pause
            await asyncio.sleep(pause)

    async def _renew(self, refused: access.Access) -> bool:
        """Whether there are other credentials than the ``refused`` ones: made now, or for another request meanwhile."""
        async with self._renewing:
            if self._access is refused:
                if time.monotonic() - self._renewed < LATELY:
                    return False
                self._renewed = time.monotonic()
                self._access = await self._again()
            return True

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """What goes wrong on the way, as ``ApiUnavailable``."""
        try:
            yield
        except ApiError:
            raise
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise ApiUnavailable(
                f"The Kubernetes API server at {self.server} couldn't {doing} ({_cause(exc)}). Try again in a moment; if it stays so, "
                "see whether it runs and whether the gateway can reach it."
            ) from None

    def _event(self, line: bytes, doing: str) -> tuple[str, Json]:
        try:
            event = json.loads(line)
            kind, told = event["type"], event["object"]
            if not isinstance(told, dict):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            raise ApiUnavailable(f"What {self.server} sends on a watch can't be read: is there a proxy on the way?") from None
        if kind == "ERROR":
            raise from_status(int(told.get("code") or 500), told, doing)
        return kind, told


def _doing(verb: str, kind: Kind, namespace: str | None, name: str | None = None) -> str:
    return f"{verb} {kind.plural}{f' {name}' if name else ''}{f' in {namespace}' if namespace else ''}"


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return min(max(float(headers.get("Retry-After", "1")), 0.05), 60.0)
    except ValueError:  # a date
        return 1.0


def _cause(exc: BaseException) -> str:
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return f"its certificate isn't trusted: {exc.__cause__ or type(exc).__name__}"
    if isinstance(exc, aiohttp.ClientConnectorError):
        return str(exc.os_error)
    return str(exc) if isinstance(exc, aiohttp.ServerDisconnectedError) and isinstance(exc.message, str) else type(exc).__name__


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose dead peer is found out in a minute, as a watch may rightly be silent for longer."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
