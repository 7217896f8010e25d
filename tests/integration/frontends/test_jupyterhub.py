"""A whole JupyterHub: its proxy, a server of their own for each of two users, and one gateway that runs the kernels of both."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.integration.frontends.node import packages
from tests.integration.machine import PATIENCE, Machine, until
from tests.integration.serving import GPU, Gateway, end, free_port

pytest.importorskip("jupyterhub", reason="needs JupyterHub: pip install '.[test]'")
pytestmark = pytest.mark.timeout(600)  # npm may have to fetch the proxy first

HUB = """
import os
c.JupyterHub.bind_url, c.JupyterHub.hub_port = "http://127.0.0.1:{port}", {hub}
c.JupyterHub.db_url, c.JupyterHub.cookie_secret = "sqlite://", bytes(32)
c.ConfigurableHTTPProxy.command, c.ConfigurableHTTPProxy.api_url = ["node", {proxy!r}], "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.auth_token = {secret!r}
c.JupyterHub.authenticator_class, c.DummyAuthenticator.password = "dummy", {secret!r}
c.Authenticator.allowed_users = {{"ana", "bo"}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {home!r}
c.Spawner.cmd, c.Spawner.args = [{python!r}, "-m", "jupyterhub.singleuser"], ["--config={singleuser}", "--allow-root"]
c.Spawner.environment = {{"JUPYTER_CONFIG_DIR": {home!r}, "JUPYTER_RUNTIME_DIR": {home!r}.replace("%U", "run")}}
c.Spawner.http_timeout = c.Spawner.start_timeout = 120
"""

SINGLEUSER = """
import os
c.GatewayClient.url = {gateway!r}
c.GatewayClient.auth_token = os.environ["JUPYTERHUB_API_TOKEN"]  # what the Hub gave this user's server
"""


class Hub:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.port, hub = machine, free_port(), free_port()
        self.url, self.api = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{hub}/hub/api"
        self.secret = "s" * 40
        proxy = packages(configurable_http_proxy="5.3.0") / "node_modules/.bin/configurable-http-proxy"
        root = machine.root / "homes"
        root.mkdir(mode=0o700)
        (root / "run").mkdir(mode=0o700)
        config = HUB.format(
            port=self.port, hub=hub, api=free_port(), proxy=str(proxy), secret=self.secret, home=f"{root}/%U", python=sys.executable,
            singleuser=machine.root / "singleuser.py",
        )  # fmt: skip
        (machine.root / "hub.py").write_text(config)
        with (machine.root / "hub.log").open("wb") as log:
            argv = [sys.executable, "-m", "jupyterhub", "-f", "hub.py"]
            self.process = subprocess.Popen(argv, cwd=machine.root, stdout=log, stderr=log)
        until(lambda: self.process.poll() is not None or self.answers())
        assert self.process.poll() is None, self.log

    def answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/hub/api", timeout=PATIENCE).ok
        except requests.ConnectionError:
            return False

    @property
    def log(self) -> str:
        return (self.machine.root / "hub.log").read_text()[-3000:]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)  # its servers and its proxy go with it
        self.process.wait(PATIENCE)


class Server(Gateway):
    """A user's own server, as their browser has it once they have logged in and it was spawned."""

    def __init__(self, hub: Hub, user: str) -> None:
        self.machine, self.browser = hub.machine, requests.Session()
        login = self.browser.get(f"{hub.url}/hub/login", timeout=PATIENCE)
        xsrf = re.search(r'name="_xsrf"\s+value="([^"]+)"', login.text)
        assert xsrf, login.text
        form = {"username": user, "password": hub.secret, "_xsrf": xsrf[1]}
        entered = self.browser.post(f"{hub.url}/hub/login", params={"next": "/hub/home"}, data=form, timeout=PATIENCE)
        assert entered.ok, entered.text
        headers = {"Referer": f"{hub.url}/hub/home", "X-XSRFToken": self.browser.cookies.get("_xsrf", path="/hub/")}
        made = self.browser.post(f"{hub.url}/hub/api/users/{user}/server", headers=headers, timeout=PATIENCE)
        assert made.status_code in (201, 202), (made.text, hub.log)
        token = self.browser.post(f"{hub.url}/hub/api/users/{user}/tokens", headers=headers, timeout=PATIENCE).json()["token"]
        self.url, self.token = f"{hub.url}/user/{user}", token
        self.headers = {"Authorization": f"token {token}"}
        until(lambda: self.call("GET", "/api/status").ok, 120)


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    found = gateway = None
    try:
        found = Hub(machine)
        gateway = OfHub(machine, "ElasticIdentityProvider.hub=True")
        (machine.root / "singleuser.py").write_text(SINGLEUSER.format(gateway=gateway.url))
        found.gateway = gateway
        yield found
    finally:
        if gateway is not None and gateway.process.poll() is None:
            end(gateway)
        if found is not None:
            found.stop()
        machine.clean()
        shutil.rmtree(machine.root, ignore_errors=True)


class OfHub(Gateway):
    def configuration(self) -> str:
        port = re.search(r"hub_port = \"http://127.0.0.1:\d+\", (\d+)", (self.machine.root / "hub.py").read_text())
        assert port
        return super().configuration() + f'c.HubAuth.api_url = "http://127.0.0.1:{port[1]}/hub/api"\n'


def test_each_users_server_has_its_kernels_at_the_one_gateway_under_the_hubs_name(hub):
    ana, bo = Server(hub, "ana"), Server(hub, "bo")
    offered = ana.call("GET", "/api/kernelspecs").json()["kernelspecs"]
    assert "elastic" in offered, offered
    with ana.kernel(KERNEL_USERNAME="bo") as hers, bo.kernel() as his:
        assert hers.open().run(GPU + "x = 'ana'; print(x)").out == "ana\n"
        assert his.open().run(GPU + "print('x' in dir())").out == "False\n"  # the one GPU has gone from her to him
        users = {lease["kernel_id"]: lease["user"] for lease in hub.gateway.gpu()["leases"]}
        assert (users[hers.id], users[his.id]) == ("ana", "bo")
        listed = [model["id"] for model in bo.call("GET", "/api/kernels").json()]
        assert listed == [his.id]
        assert hers.open().run(GPU + "print(x)").out == "ana\n"
