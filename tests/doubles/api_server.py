"""A Kubernetes API server in this process, faithful in what the gateway's client and watch cache rely on: lists in pages, watches as
chunked lines, bookmarks, both forms of 410, preconditions, and every way in which a stream can end.

Its state is public, so that a test can look and break things: ``faults`` are answers to give instead, in order.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import uuid
from typing import Any

from aiohttp import web

Json = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name


def status(code: int, reason: str, message: str, **details: Any) -> Json:
    """What the API server says of an error."""
    base = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return base | {"code": code, "reason": reason, "message": message, "details": details}


def pod(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": labels, "managedFields": [{"manager": "somebody"}]}, "spec": {}, "status": {}}


class Stream:
    """An open watch, as the server has it."""

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self.query, self._response, self._transport = dict(request.query), response, request.transport
        self.ended = asyncio.Event()
        self.silent = False

    async def send(self, kind: str, told: Json) -> None:
        if not self.silent:
            await self.raw(json.dumps({"type": kind, "object": told}).encode() + b"\n")

    async def raw(self, data: bytes) -> None:
        await self._response.write(data)

    def end(self) -> None:
        """As at ``timeoutSeconds``."""
        self.ended.set()

    def cut(self) -> None:
        """As when the server dies."""
        if self._transport is not None:
            self._transport.abort()
        self.ended.set()


class ApiServer:
    """Start it with ``async with``; ``kubeconfig(folder)`` is the way to it."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """With ``tls`` that asks for a client certificate, that speaks for the client instead of the token."""
        self._tls = tls
        self.objects: dict[Key, Json] = {}
        self.version = 100
        self.oldest = 0  # versions before have been compacted away
        self.history: list[tuple[int, str, Key, Json]] = []
        self.streams: list[Stream] = []
        self.requests: list[tuple[str, str]] = []  # method, path with query
        self.bodies: list[tuple[str, Any]] = []  # content type, body
        self.faults: list[tuple[int, Json, dict[str, str]]] = []  # code, body, headers
        self.watch_faults: list[tuple[int, Json, dict[str, str]]] = []
        self.token = "the-token"
        self.tokens_seen: list[str] = []
        self.logs: dict[str, str] = {}
        self.gone_as_event = True
        self._port = 0
        self._opened = asyncio.Event()

    async def __aenter__(self) -> ApiServer:
        app = web.Application()
        for root in ("/api/v1", "/apis/{group}/{version}"):
            for path in ("/{plural}", "/{plural}/{name}", "/namespaces/{ns}/{plural}", "/namespaces/{ns}/{plural}/{name}"):
                app.router.add_route("*", root + path, self._answer)
        app.router.add_get("/api/v1/namespaces/{ns}/pods/{name}/log", self._log)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()
        await self._runner.cleanup()

    async def listen(self) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    async def down(self) -> None:
        """Dead: nobody listens, all streams are cut."""
        if self._site in self._runner.sites:
            await self._site.stop()
        for stream in self.streams:
            stream.cut()
        self.streams.clear()
        for connection in self._runner.server.connections:
            connection.force_close()

    def kubeconfig(self, folder: Any, cluster: Json | None = None, **user: Any) -> str:
        scheme = "http" if self._tls is None else "https"
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"{scheme}://127.0.0.1:{self._port}"} | (cluster or {})}],
            "users": [{"name": "u", "user": user or {"token": self.token}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)

    async def stream(self, count: int = 1) -> Stream:
        """The newest watch, once ``count`` have been opened and not been ended."""
        while len([stream for stream in self.streams if not stream.ended.is_set()]) < count:
            self._opened.clear()
            await self._opened.wait()
        return self.streams[-1]

    async def put(self, told: Json, plural: str = "pods", namespace: str = "ns") -> Json:
        """Create or change an object, and tell the watches."""
        key = (plural, namespace, told["metadata"]["name"])
        self.version += 1
        old = self.objects.get(key)
        meta = {"namespace": namespace, "uid": old["metadata"]["uid"] if old else str(uuid.uuid4())} | told["metadata"]
        self.objects[key] = told | {"metadata": meta | {"resourceVersion": str(self.version)}}
        await self._tell("MODIFIED" if old else "ADDED", key, self.objects[key])
        return self.objects[key]

    async def remove(self, name: str, plural: str = "pods", namespace: str = "ns") -> None:
        self.version += 1
        old = self.objects.pop((plural, namespace, name))
        last = old | {"metadata": old["metadata"] | {"resourceVersion": str(self.version)}}
        await self._tell("DELETED", (plural, namespace, name), last)

    async def bookmark(self) -> None:
        for stream in self.streams:
            await stream.send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}})

    def compact(self) -> None:
        self.oldest = self.version

    async def _tell(self, kind: str, key: Key, told: Json) -> None:
        self.history.append((self.version, kind, key, told))
        for stream in [stream for stream in self.streams if not stream.ended.is_set()]:
            if self._matches(key, told, stream.query):
                await stream.send(kind, told)

    def _matches(self, key: Key, told: Json, query: Json) -> bool:
        wanted = dict(each.split("=") for each in query.get("labelSelector", "").split(",") if each)
        labels = told["metadata"].get("labels") or {}
        return key[0] == query["plural"] and query["ns"] in ("", key[1]) and wanted.items() <= labels.items()

    async def _log(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path_qs))
        words = self.logs[request.match_info["name"]].splitlines(keepends=True)
        return web.Response(text="".join(words[-int(request.query["tailLines"]) :]))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        self.tokens_seen.append(request.headers.get("Authorization", ""))
        plural, ns, name = request.match_info["plural"], request.match_info.get("ns", ""), request.match_info.get("name")
        watching = "watch" in request.query
        faults = self.watch_faults if watching else self.faults
        if faults:
            code, body, headers = faults.pop(0)
            return web.json_response(body, status=code, headers=headers)
        if self.tokens_seen[-1] != f"Bearer {self.token}" and not (request.transport and request.transport.get_extra_info("peercert")):
            return _refusal(status(401, "Unauthorized", "Unauthorized"))
        if watching:
            return await self._watch(request, plural, ns)
        if request.method == "GET" and name is None:
            return self._list(request, plural, ns)
        body = {}
        if request.method != "GET":
            body = await request.json()
            self.bodies.append((request.content_type, body))
        key = (plural, ns, name or body["metadata"]["name"])
        if request.method == "POST":
            if key in self.objects:
                return _refusal(status(409, "AlreadyExists", f'{plural} "{key[2]}" already exists'))
            return web.json_response(await self.put(body, plural, ns), status=201)
        if key not in self.objects:
            return _refusal(status(404, "NotFound", f'{plural} "{key[2]}" not found'))
        found = self.objects[key]
        if request.method == "DELETE":
            wanted, has = body.get("preconditions", {}).get("uid"), found["metadata"]["uid"]
            if wanted not in (None, has):
                said = f"the UID in the precondition ({wanted}) does not match the UID in record ({has})"
                return _refusal(status(409, "Conflict", said))
            await self.remove(key[2], plural, ns)
            return web.json_response(status(200, "", ""))
        if request.method == "PATCH":
            found = await self.put(_merged(found, body), plural, ns)
        return web.json_response(found)

    def _list(self, request: web.Request, plural: str, ns: str) -> web.Response:
        query = dict(request.query) | {"plural": plural, "ns": ns}
        start, version = (int(part) for part in query.get("continue", f"0:{self.version}").split(":"))
        if version < self.oldest:
            return _refusal(status(410, "Expired", "The provided continue parameter is too old"))
        items = [told for key, told in sorted(self.objects.items()) if self._matches(key, told, query)]
        end = start + int(query.get("limit", len(items) or 1))
        meta = {"resourceVersion": str(version)} | ({"continue": f"{end}:{version}"} if end < len(items) else {})
        return web.json_response({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items[start:end]})

    async def _watch(self, request: web.Request, plural: str, ns: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        gone = status(410, "Expired", f"too old resource version: {since} ({self.oldest})")
        if since < self.oldest and not self.gone_as_event:
            return _refusal(gone)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        stream = Stream(request, response)
        stream.query |= {"plural": plural, "ns": ns}
        if since < self.oldest:
            await stream.send("ERROR", gone)
            return response
        for version, kind, key, told in self.history:
            if version > since and self._matches(key, told, stream.query):
                await stream.send(kind, told)
        self.streams.append(stream)
        self._opened.set()
        await stream.ended.wait()
        return response


def _refusal(body: Json) -> web.Response:
    return web.json_response(body, status=body["code"])


def _merged(old: Any, change: Any) -> Any:
    """RFC 7396; of RFC 6902 ``replace`` alone."""
    if isinstance(change, list):
        for step in change:
            *way, last = step["path"].strip("/").split("/")
            place = old
            for part in way:
                place = place[part]
            place[last] = step["value"]
        return old
    if not isinstance(change, dict) or not isinstance(old, dict):
        return change
    merged = {key: value for key, value in old.items() if change.get(key, "") is not None}
    return merged | {key: _merged(old.get(key), value) for key, value in change.items() if value is not None}
