"""The user's Lab server's view of kernels on a gateway, steady while that gateway is away.

jupyter_server's own managers answer 503 for every list meanwhile, at which JupyterLab covers the page with a dialog, and drop a kernel
for good if the gateway fails between two requests. These answer from what was last known. They must never invent a kernel,
and never keep one that the gateway says is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.gateway.managers import GatewayKernelManager, GatewayKernelSpecManager, GatewayMappingKernelManager
from tornado import web
from traitlets import DottedObjectName, Float, Type, default

AWAY = frozenset({502, 503, 504, 599})


def is_away(error: BaseException) -> bool:
    """Whether ``error`` says that nobody answers for the gateway, rather than what the gateway says."""
    return isinstance(error, (TimeoutError, OSError)) or (isinstance(error, web.HTTPError) and error.status_code in AWAY)


class ElasticGatewayKernelManager(GatewayKernelManager):
    """One kernel on the gateway."""

    client_class = DottedObjectName("gateway.lab.client.ElasticGatewayKernelClient")
    client_factory = Type(klass="gateway.lab.client.ElasticGatewayKernelClient")

    async def start_kernel(self, **kwargs: Any) -> None:
        """The base class logs what it is given, so it is given only what it will send, and none of this server's environment."""
        kwargs.setdefault("kernel_name", self.kernel_name)  # batch programs name it to the constructor, where the base class doesn't look
        allowed = GatewayClient.instance().allowed_envs.split(",")
        kwargs["env"] = {name: text for name, text in kwargs.get("env", {}).items() if name.startswith("KERNEL_") or name in allowed}
        await super().start_kernel(**kwargs)

    async def refresh_model(self, model: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """The newest model; the last known one while the gateway is away; None once it says 404."""
        try:
            return await super().refresh_model(model)
        except Exception as exc:
            if self.kernel is None or not is_away(exc):
                raise
            return self.kernel

    def resolve_path(self, path: str) -> None:
        """JupyterLab asks where a path in some output leads. Here nowhere: the kernel's files are elsewhere. The base class raises."""

    async def is_alive(self) -> bool:
        """Unlike the base class's answer, this is False for a kernel that has just gone or is dead."""
        model = await self.refresh_model() if self.has_kernel else None
        return model is not None and model.get("execution_state") != "dead"


class ElasticGatewayMappingKernelManager(GatewayMappingKernelManager):
    """All kernels of this Lab server."""

    answer_within = Float(
        10.0,
        config=True,
        help="Seconds that the gateway has to list or end kernels before it counts as away; lists then show what was known.",
    )

    _listing: asyncio.Task[list[dict[str, Any]]] | None = None

    @default("kernel_manager_class")
    def _default_kernel_manager_class(self) -> str:
        return f"{__name__}.{ElasticGatewayKernelManager.__name__}"

    async def list_kernels(self, **kwargs: Any) -> list[dict[str, Any]]:
        """What the gateway says. However many pages ask at once, it is asked once."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.ensure_future(self._list())
        return await asyncio.shield(self._listing)

    async def _list(self) -> list[dict[str, Any]]:
        try:
            return await asyncio.wait_for(super().list_kernels(), self.answer_within)
        except Exception as exc:
            if not is_away(exc):
                raise
            self.log.warning("The gateway doesn't answer; its kernels are shown as they were last known.")
            return [km.kernel for km in self._kernels.values() if km.kernel]

    async def shutdown_all(self, now: bool = False) -> None:
        """End all kernels of this server, each whatever becomes of the others; what could not be ended is named."""
        ids = list(self._kernels)
        ends = [asyncio.wait_for(self.shutdown_kernel(kernel_id, now=now), self.answer_within) for kernel_id in ids]
        for kernel_id, result in zip(ids, await asyncio.gather(*ends, return_exceptions=True), strict=True):
            if isinstance(result, BaseException):
                self.log.warning("Kernel %s could not be ended and may go on at the gateway: %s", kernel_id, result)
                self.remove_kernel(kernel_id)


class ElasticGatewayKernelSpecManager(GatewayKernelSpecManager):
    """The gateway's kernelspecs; the last known ones while it is away."""

    _last: dict[str, Any] | None = None

    async def list_kernel_specs(self) -> dict[str, Any]:
        try:
            self._last = await super().list_kernel_specs()
        except Exception as exc:
            if self._last is None or not is_away(exc):
                raise
        return self._last
