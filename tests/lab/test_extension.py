"""What installing the wheel changes in a user's Jupyter server, and what it leaves alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from jupyter_server.gateway.connections import GatewayWebSocketConnection
from jupyter_server.gateway.gateway_client import GatewayClient
from traitlets.config import Config

from gateway.lab import _jupyter_server_extension_points, extension
from gateway.lab.connection import ElasticGatewayConnection, websocket_url


@pytest.fixture
def server(monkeypatch):
    def make(url="", **configured):
        client = GatewayClient(url=url)
        monkeypatch.setattr(GatewayClient, "instance", lambda **_: client)
        return SimpleNamespace(config=Config(ServerApp=configured), gateway_config=client)

    return make


def test_a_server_without_a_gateway_is_left_alone(server):
    app = server()
    before = dict(vars(app))
    extension._link_jupyter_server_extension(app)
    extension._load_jupyter_server_extension(app)
    assert vars(app) == before


def test_a_server_with_a_gateway_gets_our_classes(server):
    app = server("http://gateway:8888")
    extension._link_jupyter_server_extension(app)
    assert app.kernel_websocket_connection_class is ElasticGatewayConnection
    assert app.gateway_config.allowed_envs == "JPY_SESSION_NAME"


def test_a_class_that_the_user_has_configured_stands(server):
    app = server("http://gateway:8888", kernel_websocket_connection_class=GatewayWebSocketConnection)
    extension._link_jupyter_server_extension(app)
    assert not hasattr(app, "kernel_websocket_connection_class")


def test_the_extension_is_named_where_servers_look_for_it():
    assert _jupyter_server_extension_points() == [{"module": "gateway.lab.extension"}]


@pytest.mark.parametrize(
    ("url", "ws_url", "wanted"),
    [
        ("http://host:1/Base", None, "ws://host:1/Base"),
        ("https://http-gw.example/User/Ann", None, "wss://http-gw.example/User/Ann"),
        ("http://host:1", "ws://other:2/x", "ws://other:2/x"),
    ],
)
def test_the_websocket_address_keeps_its_capitals_and_its_hosts_name(url, ws_url, wanted):
    client = GatewayClient(url=url) if ws_url is None else GatewayClient(url=url, ws_url=ws_url)
    assert websocket_url(client) == wanted
