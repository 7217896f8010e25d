"""A driver for dynamic resource allocation, for the tests: a node's kubelet takes it for real and asks it before each pod with a claim.

It speaks the kubelet's registration and its DRA interface (v1) over the sockets that every real driver uses; fields are numbered as in
Kubernetes' ``pluginregistration/v1`` and ``dra/v1/api.proto``. What a pod then sees is the container runtime's work, by CDI: here it is
given nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from .device_plugin import SECONDS, field, fields

KUBELET = "/var/lib/kubelet"  # as the kubelet sees its own folder


class DraDriver:
    """``name``: of the driver, as ResourceSlices have it; ``folder``: the kubelet's, as this machine sees it. ``prepared`` are the names
    of the claims that pods have been started with, ``registered`` whether the kubelet knows the driver."""

    def __init__(self, folder: Path, name: str) -> None:
        self.prepared: list[str] = []
        self.registered = False
        self._name = name
        ours, registry = folder / "plugins" / name, folder / "plugins_registry"
        for each in (ours, registry):
            each.mkdir(parents=True, exist_ok=True)
        self._endpoint = f"{KUBELET}/plugins/{name}/dra.sock"
        self._sockets = ours / "dra.sock", registry / f"{name}-reg.sock"
        self._servers = [
            _serving(self._sockets[0], "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
                     {"NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare}),
            _serving(self._sockets[1], "pluginregistration.Registration",
                     {"GetInfo": self._info, "NotifyRegistrationStatus": self._told}),
        ]  # fmt: skip

    def close(self) -> None:
        for socket in reversed(self._sockets):
            socket.unlink(missing_ok=True)
        for server in self._servers:
            server.stop(None).wait(SECONDS)

    def _info(self, request: bytes, context: Any) -> bytes:
        return field(1, "DRAPlugin") + field(2, self._name) + field(3, self._endpoint) + field(4, "v1.DRAPlugin")

    def _told(self, request: bytes, context: Any) -> bytes:
        self.registered = request[:2] == b"\x08\x01"  # field 1, a true
        return b""

    def _prepare(self, request: bytes, context: Any) -> bytes:
        return b"".join(self._claim(claim, self.prepared) for number, claim in fields(request) if number == 1)

    def _unprepare(self, request: bytes, context: Any) -> bytes:
        return b"".join(self._claim(claim, []) for number, claim in fields(request) if number == 1)

    @staticmethod
    def _claim(claim: bytes, into: list[str]) -> bytes:
        """The entry of the answer: its uid, and that all went well."""
        known = dict(fields(claim))
        into.append(known[3].decode())
        return field(1, field(1, known[2]) + field(2, b""))


def _serving(socket: Path, service: str, answers: dict[str, Any]) -> grpc.Server:
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(4))
    methods = {name: grpc.unary_unary_rpc_method_handler(answer) for name, answer in answers.items()}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server
