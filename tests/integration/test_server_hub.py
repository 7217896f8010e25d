"""A real gateway whose users are those of a real JupyterHub: its tokens, its admins, its groups."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from tests.integration.machine import PATIENCE, Machine, until
from tests.integration.serving import GPU, Gateway, end, free_port
from tests.integration.users import Someone

pytest.importorskip("jupyterhub", reason="needs JupyterHub: pip install '.[test]'")

MAKER = "maker-" + "y" * 40
CONFIG = """
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):  # nobody logs in by browser here
    should_start = False
    async def add_route(self, routespec, target, data): pass
    async def delete_route(self, routespec): pass
    async def get_all_routes(self): return {{}}

c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.hub_port, c.JupyterHub.port = {hub}, {port}
c.JupyterHub.db_url, c.JupyterHub.cookie_secret = "sqlite://", bytes(32)
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {{"ana", "bo"}}
c.Authenticator.admin_users = {{"ops"}}
c.JupyterHub.load_groups = {{"students": {{"users": ["ana"]}}}}
c.JupyterHub.services = [{{"name": "maker", "api_token": {maker!r}}}]
c.JupyterHub.load_roles = [{{"name": "maker", "scopes": ["tokens", "users", "admin:users", "groups"], "services": ["maker"]}}]
"""


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Gateway, dict[str, str], subprocess.Popen[bytes]]]:
    """A gateway, a Hub's token of each user, and the Hub."""
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    hub, port = free_port(), free_port()
    config = machine.root / "hub.py"
    config.write_text(CONFIG.format(hub=hub, port=port, maker=MAKER))
    api = f"http://127.0.0.1:{hub}/hub/api"
    with (machine.root / "hub.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "jupyterhub", "-f", config], cwd=machine.root, stdout=log, stderr=log)
    gateway = None
    try:
        until(lambda: process.poll() is not None or answers(api))
        assert process.poll() is None, (machine.root / "hub.log").read_text()[-2000:]
        headers = {"Authorization": f"token {MAKER}"}
        tokens = {
            name: requests.post(f"{api}/users/{name}/tokens", headers=headers, timeout=PATIENCE).json()["token"]
            for name in ("ana", "bo", "ops")
        }
        tokens["unseen"] = requests.post(f"{api}/users/bo/tokens", headers=headers, timeout=PATIENCE).json()["token"]
        (machine.root / "policy.yaml").write_text("groups: {students: {idle_timeout: 33}}")
        machine.api = api
        gateway = OfHub(machine, "ElasticIdentityProvider.hub=True", f"Leases.policy_file={machine.root / 'policy.yaml'}")
        yield gateway, tokens, process
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if gateway is not None and gateway.process.poll() is None:
            end(gateway)
        machine.clean()


def answers(api: str) -> bool:
    with suppress(requests.ConnectionError):
        return requests.get(api, timeout=PATIENCE).ok
    return False


class OfHub(Gateway):
    def configuration(self) -> str:
        return super().configuration() + f"c.HubAuth.api_url = {self.machine.api!r}\n"


def test_a_hubs_token_tells_who_asks_and_kernels_are_theirs(site):
    gateway, tokens, _ = site
    ana, bo, ops = (Someone(gateway, tokens[name]) for name in ("ana", "bo", "ops"))
    assert ana.call("GET", "/api/me").json()["identity"]["username"] == "ana"
    with ana.kernel(KERNEL_USERNAME="bo") as kernel:
        kernel.open().run(GPU + "1")
        assert kernel.lease["user"] == "ana"
        held = ana.call("GET", f"/api/gpu/policy?kernel={kernel.id}").json()
        assert (held["groups"], held["settings"]["idle_timeout"]["value"]) == (["students"], 33.0)
        assert bo.call("DELETE", f"/api/kernels/{kernel.id}").status_code == 403
        assert bo.call("PATCH", "/api/gpu/policy", json={"max_hold": 60}).status_code == 403
        assert ops.call("PATCH", "/api/gpu/policy", json={"max_hold": 60}).ok
        gateway.stop(signal.SIGKILL)
        gateway.start()  # nobody has come since whom the Hub would be asked about
        until(lambda: kernel.id in {lease["kernel_id"] for lease in gateway.gpu()["leases"]})
        again = gateway.call("GET", f"/api/gpu/policy?kernel={kernel.id}").json()
        assert (again["groups"], again["settings"]["idle_timeout"]["value"]) == (["students"], 33.0)


def test_a_token_that_the_hub_does_not_know_lets_nobody_in(site):
    gateway, tokens, _ = site
    assert Someone(gateway, "f" * 32).call("GET", "/api/kernels").status_code == 403
    assert Someone(gateway, tokens["ana"][:-1]).call("GET", "/api/kernels").status_code == 403


def test_while_the_hub_does_not_answer_nobody_is_let_in_but_by_the_gateways_own_token(site):
    gateway, tokens, hub = site
    hub.terminate()
    hub.wait(PATIENCE)
    refused = Someone(gateway, tokens["unseen"]).call("GET", "/api/kernels")
    assert refused.status_code == 503
    assert "JupyterHub" in refused.json()["message"]
    assert gateway.call("GET", "/api/kernels").ok
