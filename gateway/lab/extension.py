"""Server extension of the user's Lab server: with ``--gateway-url`` given, kernels are reached through our classes.

Installing the wheel switches it on. Without a gateway it must never change anything, nor cost more than this import; and a
class that the user has configured always stands.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.gateway.gateway_client import GatewayClient

NOTEBOOK = "JPY_SESSION_NAME"  # path of the notebook, which the gateway shows to those who wait for its GPU


def _link_jupyter_server_extension(serverapp: Any) -> None:
    """Called while the server reads its extensions. What comes after us, JupyterLab's own configuration file too, may still name the
    gateway, so whether there is one is asked only when the managers are about to be made; for that moment the server has no hook."""
    make_managers = serverapp.init_configurables

    def init_configurables() -> None:
        _choose_classes(serverapp)
        make_managers()

    serverapp.init_configurables = init_configurables


def _choose_classes(serverapp: Any) -> None:
    """All configuration is known: with a gateway, our classes take the place of the stock ones."""
    client = GatewayClient.instance(parent=serverapp)
    if not client.gateway_enabled:
        return
    from .connection import ElasticGatewayConnection
    from .managers import ElasticGatewayKernelSpecManager, ElasticGatewayMappingKernelManager

    ours = {
        "kernel_websocket_connection_class": ElasticGatewayConnection,
        "kernel_manager_class": ElasticGatewayMappingKernelManager,
        "kernel_spec_manager_class": ElasticGatewayKernelSpecManager,
    }
    for name, cls in ours.items():
        if name not in serverapp.config.ServerApp:
            setattr(serverapp, name, cls)
    allowed = [name for name in client.allowed_envs.split(",") if name]
    if NOTEBOOK not in allowed:
        client.allowed_envs = ",".join([*allowed, NOTEBOOK])


def _load_jupyter_server_extension(serverapp: Any) -> None:
    """Called last. Our handler of kernels' channels goes before the server's own, where our connection class is in use."""
    from . import page

    if not serverapp.gateway_config.gateway_enabled:
        if serverapp.config.get("ElasticGateway", {}).get("embedded", False):  # the gateway is this server
            page.switch_on(serverapp)
        return
    from jupyter_server.services.kernels.handlers import _kernel_id_regex
    from jupyter_server.utils import url_path_join

    from . import forward
    from .connection import ChannelsHandler, ElasticGatewayConnection

    serverapp.web_app.add_handlers(".*$", forward.handlers(serverapp.base_url))
    page.switch_on(serverapp)

    if issubclass(serverapp.kernel_websocket_connection_class, ElasticGatewayConnection):
        channels = url_path_join(serverapp.base_url, f"/api/kernels/{_kernel_id_regex}/channels")
        serverapp.web_app.add_handlers(".*$", [(channels, ChannelsHandler)])
