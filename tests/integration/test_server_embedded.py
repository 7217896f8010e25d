"""A user's own Jupyter server that leases GPUs itself, with no gateway beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.machine import PATIENCE, Machine, until
from tests.integration.serving import GPU, Gateway


class LabServer(Gateway):
    """``jupyter server`` with our extension; to a browser it is what a gateway is."""

    def start(self) -> subprocess.Popen[bytes]:
        config = self.machine.root / "c/jupyter_server_config.py"
        config.write_text(
            f"c.IdentityProvider.token = {self.token!r}\nc.ServerApp.allow_root = True\nc.ServerApp.port = {self.port}\n"
            "c.ServerApp.jpserver_extensions = {'gateway.server.extension': True}\nc.ElasticGateway.simulated_gpus = 1\n"
        )
        argv = [sys.executable, "-m", "jupyter_server", *(f"--{setting}" for setting in self.settings)]
        env = {**os.environ, **self.machine.env}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(argv, env=env, cwd=self.machine.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self.process.poll() is not None or self.answers())
        return self.process


@pytest.fixture
def machine() -> Iterator[Machine]:
    found = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    yield found
    found.clean()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_an_embedded_server_leases_and_its_kernels_end_with_it(machine, signum):
    server = LabServer(machine, "ElasticGateway.embedded=True")
    try:
        response = server.call("POST", "/api/sessions", json={"path": "a.ipynb", "type": "notebook", "kernel": {"name": "elastic"}})
        assert response.status_code == 201, response.text
        one, two = (server.kernel() for _ in range(2))
        assert one.open().run(GPU + "x = 41").status == "ok"
        assert two.open().run(GPU + "print('mine now')").out == "mine now\n"
        assert one.open().run(GPU + "print(x + 1)").out == "42\n", "parked and back"
        assert {lease["kernel_id"] for lease in server.gpu()["leases"]} >= {one.id, two.id}
        assert one.call("POST", "/restart").status_code == 200
        assert one.open().run("print('back')").out == "back\n"
    finally:
        server.stop(signum)
    until(lambda: machine.supervisors() == [])


def test_an_embedded_server_tells_of_a_kernelspec_that_is_not_there_in_the_forms_that_jupyterlab_knows(machine):
    server = LabServer(machine, "ElasticGateway.embedded=True", "ElasticMappingKernelManager.max_kernels=0")
    try:
        missing = server.call("POST", "/api/kernels", json={"name": "nonesuch"})
        assert missing.status_code == 404 and "There is no kernel named 'nonesuch' here. There are: elastic" in missing.json()["message"]
        session = {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "nonesuch"}}
        missing = server.call("POST", "/api/sessions", json=session)
        assert missing.status_code == 501 and missing.json()["short_message"] == "nonesuch not found"
        many = server.call("POST", "/api/kernels", json={"name": "elastic"})
        assert many.status_code == 429 and "max_kernels" in many.json()["message"]
    finally:
        server.stop()


def test_an_embedded_server_beside_a_gateway_says_in_the_notebook_who_leases_the_gpus(machine):
    gateway = Gateway(machine)
    server = None
    try:
        server = LabServer(machine, "ElasticGateway.embedded=True")
        cell = server.kernel().open().run("1")
        assert cell.status == "error" and f"process {gateway.process.pid}" in cell.evalue and "restart this server" in cell.evalue
        assert machine.supervisors() == []
    finally:
        if server is not None:
            server.stop()
        gateway.stop()


def test_a_server_that_is_not_told_to_changes_nothing(machine):
    server = LabServer(machine)
    try:
        assert server.call("GET", "/api/gpu").status_code == 404
        assert server.call("GET", "/api/contents").ok
        assert "elastic" not in server.log.lower().replace("elasticgateway", "")
    finally:
        server.stop()
        server.process.wait(PATIENCE)
