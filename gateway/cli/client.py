"""Finds whoever leases GPUs: a gateway, spoken to by HTTP, or else the broker that runs for processes without one.

A gateway writes its address and token into Jupyter's runtime folder, in a file that only its user can read. This module must
never take a token from the command line, and never send one of those files' to an address that it doesn't belong to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from jupyter_core.paths import jupyter_runtime_dir

from ..backends.local import LocalMachine
from ..backends.places import Places
from ..backends.processes import started
from ..broker.client import request
from ..broker.seat import BROKER, GATEWAY
from ..protocol.errors import BrokerUnavailable, ElasticError
from ..settings import ElasticGateway, LocalBackend, SimulatedGpu, machine_config

SECONDS = 30.0  # for one answer
NONE_RUNS = "no_gateway"
NOT_YOURS = "User is not authorized"  # jupyter_server's words to whoever it knows


class GatewayClient:
    """One gateway. Raises ``ElasticError`` with the gateway's own message, or why there is none."""

    kind = GATEWAY

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"token {token}"} if token else {}
        # A proxy of the environment is for the world outside.
        local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
        self._opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def snapshot(self) -> dict[str, Any]:
        """GPUs, leases and queue."""
        return self.get("/api/gpu")  # type: ignore[no-any-return]

    def release(self, kernel_id: str) -> None:
        self.request("POST", f"/api/gpu/kernels/{kernel_id}/release")

    def hold(self, kernel_id: str, seconds: float) -> None:
        self.request("POST", f"/api/gpu/kernels/{kernel_id}/hold", {"seconds": seconds})

    def policy(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The rules in force, after ``changes``."""
        path = "/api/gpu/policy"
        return self.request("PATCH", path, changes) if changes else self.get(path)  # type: ignore[no-any-return]

    def explain(self, kernel_id: str) -> dict[str, Any]:
        """Which rules hold for a kernel, and why."""
        return self.get(f"/api/gpu/policy?kernel={quote(kernel_id, safe='')}")  # type: ignore[no-any-return]

    def usage(self, by: str, since: float | None, until: float | None) -> dict[str, Any]:
        """GPU time; moments are seconds since 1970."""
        said = {"by": by, **{name: _iso(at) for name, at in (("since", since), ("until", until)) if at is not None}}
        return self.get(f"/api/gpu/usage?{urlencode(said)}")  # type: ignore[no-any-return]

    def drain(self, node: str, on: bool) -> None:
        self.request("POST", f"/api/gpu/nodes/{quote(node, safe='')}/drain", {"on": on})

    def shutdown(self, kernels: bool) -> dict[str, Any]:
        """``{"ended": number of kernels}``."""
        return self.request("POST", "/api/shutdown", {"kernels": kernels}, seconds=120)  # type: ignore[no-any-return]

    def about(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def request(self, method: str, path: str, body: Any = None, seconds: float = SECONDS) -> Any:
        data = None if body is None and method == "GET" else json.dumps(body or {}).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        try:
            with self._opener.open(urllib.request.Request(self.url + path, data, headers, method=method), timeout=seconds) as response:
                text = response.read()
        except urllib.error.HTTPError as exc:
            raise _said(self.url, exc) from None
        except OSError as exc:
            reason = getattr(exc, "reason", exc)
            raise BrokerUnavailable(f"No answer from {self.url}: {reason}. Is the gateway running?") from None
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise BrokerUnavailable(f"{self.url} answers, but isn't an elastic gateway.") from None


class BrokerClient:
    """The broker of this user's processes that use no gateway."""

    kind = BROKER

    def __init__(self) -> None:
        self._local = LocalBackend(config=machine_config())
        self._places = Places(self._local.runtime_dir)
        self.url = str(self._places.broker_socket)

    def snapshot(self) -> dict[str, Any]:
        return request(self._places, "snapshot")["snapshot"]  # type: ignore[no-any-return]

    def release(self, kernel_id: str) -> None:
        request(self._places, "release", kernel_id=kernel_id)

    def hold(self, kernel_id: str, seconds: float) -> None:
        request(self._places, "hold", kernel_id=kernel_id, seconds=seconds)

    def policy(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The rules in force, after ``changes``."""
        return request(self._places, "policy", changes=changes)["policy"]  # type: ignore[no-any-return]

    def explain(self, kernel_id: str) -> dict[str, Any]:
        """Which rules hold for a kernel, and why."""
        return request(self._places, "policy", kernel_id=kernel_id)["policy"]  # type: ignore[no-any-return]

    def usage(self, by: str, since: float | None, until: float | None) -> dict[str, Any]:
        """GPU time; moments are seconds since 1970."""
        return request(self._places, "usage", by=by, since=since, until=until)["usage"]  # type: ignore[no-any-return]

    def drain(self, node: str, on: bool) -> None:
        request(self._places, "drain", node=node, on=on)

    def shutdown(self, kernels: bool) -> dict[str, Any]:
        """``{"ended": number of kernels that a gateway has left, "stopped": whether there was a broker}``. Raises ``LeaseError`` where
        the broker is needed."""
        running = self.runs()
        if running and self.about()["kind"] == GATEWAY:  # one that we can't reach otherwise: it says who it is, and nothing is ended
            request(self._places, "end")
        ended = asyncio.run(self._end_left()) if kernels else 0
        if running:
            request(self._places, "end")
        return {"ended": ended, "stopped": running}

    def about(self) -> dict[str, Any]:
        said = request(self._places, "status")
        return {name: said[name] for name in ("kind", "pid", "outdated") if name in said}

    def runs(self) -> bool:
        try:
            request(self._places, "status")
        except BrokerUnavailable:
            return False
        return True

    async def _end_left(self) -> int:
        """What a gateway has left; kernels of processes end with those."""
        machine = LocalMachine(ElasticGateway(), self._local, SimulatedGpu())
        left, waiting = [each for each in await machine.find() if each.owner], await machine.unfinished()
        for spec in waiting:
            machine.withdraw(spec.kernel_id)
        await asyncio.gather(*(each.end(self._local.shutdown_grace) for each in left))
        return len(left) + len(waiting)


Lessor = GatewayClient | BrokerClient


def arguments(parser: argparse.ArgumentParser) -> None:
    """How every subcommand that speaks to a gateway is told which."""
    parser.add_argument("--url", help="address of the gateway (default: the one that runs on this machine)")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file that holds the token for --url (default: that of this user's own gateway there, or JUPYTER_TOKEN)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON as the gateway sends it")


def lessor(args: argparse.Namespace, or_left_kernels: bool = False) -> Lessor:
    """Who leases GPUs here: the gateway that ``args`` names or the only one, or else the broker (``or_left_kernels``: also one that
    doesn't run, to end what a gateway has left)."""
    try:
        return connect(args)
    except BrokerUnavailable as exc:
        if exc.reason != NONE_RUNS:
            raise
        broker = BrokerClient()
        if not (or_left_kernels or broker.runs()):
            raise
        return broker


def connect(args: argparse.Namespace) -> GatewayClient:
    """The gateway that ``args`` names, or the only one that runs here."""
    if args.token_file and not args.url:
        raise ElasticError("--token-file says how to enter a gateway, not which: give its --url too.", reason="bad_usage")
    if args.url:
        return GatewayClient(args.url, _token(args.token_file) if args.token_file else _known_token(args.url))
    found = list(running())
    if not found:
        raise BrokerUnavailable(
            f"No gateway of this user runs on this machine (looked in {jupyter_runtime_dir()}). "
            "Start one with `jupyter elastic-gateway`, or name one with --url and --token-file.",
            reason=NONE_RUNS,
        )
    if len(found) > 1:
        raise ElasticError(
            f"Several gateways run here; choose one with --url: {', '.join(g.url for g in found)}", reason="several_gateways"
        )
    return found[0]


def running() -> Iterator[GatewayClient]:
    """The gateways of this user on this machine. Other Jupyter servers are passed over: they have no ``/api/gpu``."""
    for info in servers():
        if info.get("sock"):
            continue
        client = GatewayClient(info["url"], info["token"])
        try:
            client.request("GET", "/api/gpu", seconds=5)
        except ElasticError:
            continue
        yield client


def servers() -> Iterator[dict[str, Any]]:
    """What the running Jupyter servers of this user have left in their files. (jupyter_server lists them too, but takes seconds to be
    imported, which is long for a word on the command line.)"""
    for file in sorted(Path(jupyter_runtime_dir()).glob("jpserver-*.json")):
        try:
            info = json.loads(file.read_text(encoding="utf-8"))
            if started(int(info["pid"])) is not None:
                yield {"url": str(info["url"]), "token": str(info.get("token") or ""), "sock": info.get("sock")}
        except (OSError, ValueError, KeyError, TypeError):  # just gone, or being written
            continue


def cells(lessor: Lessor, since: float | None, until: float | None) -> Iterator[dict[str, Any]]:
    """Each stretch in which a kernel executed, newest first, however many there are."""
    seen: set[tuple[str, str]] = set()
    while True:
        told = lessor.usage("cell", since, until)
        new = [row for row in told["rows"] if (row["kernel"], row["begin"]) not in seen]
        yield from new
        if not told.get("more") or not new:
            return
        seen = {(row["kernel"], row["begin"]) for row in told["rows"]}
        until = datetime.fromisoformat(new[-1]["begin"]).timestamp() + 0.001  # rounded moments: some come twice


def kernel_id(lessor: Lessor, prefix: str) -> str:
    """The whole id of the kernel whose id begins with ``prefix``."""
    ids = [lease["kernel_id"] for lease in lessor.snapshot()["leases"]]
    fitting = [kernel for kernel in ids if kernel.startswith(prefix)]
    if prefix in fitting:
        return prefix
    if len(fitting) != 1:
        what = f"{len(fitting)} kernels' ids begin" if fitting else "No kernel's id begins"
        raise ElasticError(f"{what} with {prefix!r}; `jupyter elastic-gateway leases` lists them.", reason="no_such_kernel")
    return fitting[0]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _said(url: str, error: urllib.error.HTTPError) -> ElasticError:
    """What the gateway itself says about its refusal."""
    try:
        body = json.loads(error.read())
        message, reason = body["message"], body.get("reason") or "refused"
    except (ValueError, KeyError, TypeError):
        message, reason = "", ""
    if error.code == 403 and message.startswith(NOT_YOURS):
        return ElasticError(
            f"{url} knows who you are, and you may not do that: each user acts on their own kernels, an admin on all, on the policy and on "
            "nodes. Give another token by --token-file or JUPYTER_TOKEN, or ask an admin.",
            reason="forbidden",
        )
    if error.code in (401, 403):
        return ElasticError(f"{url} doesn't let us in: give the right token by --token-file or JUPYTER_TOKEN.", reason="forbidden")
    if error.code == 404 and not message:
        return BrokerUnavailable(f"{url} answers, but isn't an elastic gateway.")
    return ElasticError(message or f"{url} answers {error.code} {error.reason}.", reason=reason or "refused")


def _token(path: str, named_by: str = "--token-file") -> str:
    try:
        return Path(path).expanduser().read_text().strip()
    except OSError as exc:
        raise ElasticError(f"{named_by} {path} can't be read: {exc.strerror}.", reason="bad_usage") from None


def _known_token(url: str) -> str:
    """The token of a server of this user at exactly this address; else what the user has set for it in the environment, as for the
    gateway itself."""
    for info in servers():
        if info["url"].rstrip("/") == url.rstrip("/"):
            return str(info["token"])
    file = os.environ.get("JUPYTER_TOKEN_FILE")
    return os.environ.get("JUPYTER_TOKEN") or (_token(file, "JUPYTER_TOKEN_FILE") if file else "")
