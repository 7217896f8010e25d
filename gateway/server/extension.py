"""``ElasticGateway.embedded = True`` in a user's own Jupyter server: its kernels share GPUs, with no gateway beside it.

Kernels of such a server end with it, as its users expect. Unless switched on this must never change anything, nor cost an import:
every Jupyter server of an environment that has this package loads it.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "gateway.server.extension"}]


def _link_jupyter_server_extension(serverapp: Any) -> None:
    """Called while the server reads its extensions, before its managers and handlers are made: ours take their places."""
    if not _switched_on(serverapp):
        return
    from .connection import ElasticWebsocketConnection
    from .kernels import ElasticMappingKernelManager

    serverapp.kernel_manager_class = ElasticMappingKernelManager
    serverapp.kernel_websocket_connection_class = ElasticWebsocketConnection


def _load_jupyter_server_extension(serverapp: Any) -> None:
    """Called when everything is made and nothing runs yet."""
    if not _switched_on(serverapp):
        return
    from jupyter_server.serverapp import load_handlers
    from jupyter_server.utils import url_path_join

    from . import embed
    from .kernels import ElasticMappingKernelManager

    kernels = serverapp.kernel_manager
    if not isinstance(kernels, ElasticMappingKernelManager):
        serverapp.log.error("ElasticGateway.embedded has no effect: this server reaches its kernels through a gateway.")
        return
    broker = embed.make_broker(serverapp, kernels, owner="")
    serverapp.web_app.settings["elastic_broker"] = broker
    ours = [handler for module in embed.LAB_SERVICES for handler in load_handlers(module)]
    serverapp.web_app.add_handlers(".*$", [(url_path_join(serverapp.base_url, path), handler) for path, handler in ours])
    kernels.broker_is_up.clear()
    serverapp.io_loop.add_callback(_start, serverapp, kernels, broker)


async def _start(serverapp: Any, kernels: Any, broker: Any) -> None:
    from ..protocol.errors import ElasticError
    from . import embed

    try:
        await embed.start(broker, kernels)
    except ElasticError as exc:
        broker.refusal = f"This server could not begin to lease GPUs, so it starts no elastic kernel: {exc} Then restart this server."
        serverapp.log.error("This server leases no GPUs: %s", exc)
    kernels.broker_is_up.set()


def _switched_on(serverapp: Any) -> bool:
    return bool(serverapp.config.get("ElasticGateway", {}).get("embedded", False))
