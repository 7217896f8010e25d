"""What installing the wheel changes in a user's Jupyter server, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from jupyter_server.gateway.gateway_client import GatewayClient

from gateway.lab import _jupyter_server_extension_points
from gateway.lab.connection import websocket_url

URL = "http://gateway.example:8888"
SETTINGS = f"c.GatewayClient.url = {URL!r}\nc.GatewayClient.auth_token = 'of-the-gateway'\nc.GatewayClient.allowed_envs = 'HOME'\n"
OURS = {
    "kernel_websocket_connection_class": "gateway.lab.connection.ElasticGatewayConnection",
    "kernel_manager_class": "gateway.lab.managers.ElasticGatewayMappingKernelManager",
    "kernel_spec_manager_class": "gateway.lab.managers.ElasticGatewayKernelSpecManager",
}

PROGRAM = """
import json, sys
from jupyterlab.labapp import LabApp
server = LabApp.initialize_server(argv=sys.argv[1:])
client = server.gateway_config
names = ("kernel_websocket_connection_class", "kernel_manager_class", "kernel_spec_manager_class")
classes = {name: getattr(server, name) for name in names}
found = {name: f"{cls.__module__}.{cls.__qualname__}" for name, cls in classes.items()}
print(json.dumps({"url": client.url, "token": client.auth_token, "envs": client.allowed_envs, "classes": found}))
"""


@pytest.fixture
def lab(tmp_path):
    """``lab("--option", file="settings", NAME="variable")``: what a real JupyterLab has made of its configuration as it comes up."""

    def start(*argv, files=(), **env):
        for name, text in dict(files).items():
            (tmp_path / name).write_text("c = get_config()\n" + text)
        here = {"JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path), "JUPYTER_DATA_DIR": str(tmp_path)}
        options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--ServerApp.root_dir={tmp_path}"]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *options, *argv], env={**os.environ, **here, **env}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return start


@pytest.mark.parametrize(
    "where",
    [
        {"files": {"jupyter_lab_config.py": SETTINGS}},
        {"files": {"jupyter_server_config.py": SETTINGS}},
        {"files": {"jupyter_lab_config.py": "c.ServerApp.log_level = 'INFO'"}, "JUPYTER_GATEWAY_URL": URL,
         "JUPYTER_GATEWAY_AUTH_TOKEN": "of-the-gateway", "JUPYTER_GATEWAY_ALLOWED_ENVS": "HOME"},
        {"options": (f"--gateway-url={URL}", "--GatewayClient.auth_token=of-the-gateway", "--GatewayClient.allowed_envs=HOME")},
    ],
    ids=["lab's file", "the server's file", "environment", "command line"],
)  # fmt: skip
def test_a_gateway_is_found_wherever_stock_programs_find_it(lab, where):
    found = lab(*where.pop("options", ()), **where)
    assert found == {"url": URL, "token": "of-the-gateway", "envs": "HOME,JPY_SESSION_NAME", "classes": OURS}


def test_a_server_without_a_gateway_is_left_alone(lab):
    found = lab()
    assert not found["url"]
    assert all(name.startswith("jupyter_") for name in found["classes"].values())


@pytest.mark.parametrize("file", ["jupyter_lab_config.py", "jupyter_server_config.py"])
def test_a_class_that_the_user_has_configured_stands(lab, file):
    stock = "jupyter_server.gateway.connections.GatewayWebSocketConnection"
    found = lab(f"--gateway-url={URL}", files={file: f"c.ServerApp.kernel_websocket_connection_class = {stock!r}"})
    assert found["classes"] == {**OURS, "kernel_websocket_connection_class": stock}


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
