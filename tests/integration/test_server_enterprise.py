"""A site that comes from an Enterprise Gateway: its variables and kernelspecs, on a real gateway."""

from __future__ import annotations

import pytest

from tests.enterprise.test_kernelspecs import theirs
from tests.integration.serving import GPU, Gateway, end

OF_THE_SITE = {
    "EG_MAX_KERNELS_PER_USER": "1", "EG_UNAUTHORIZED_USERS": "root,mallory", "EG_CLIENT_ENVS": "FLAVOUR", "EG_LIST_KERNELS": "True",
    "EG_PORT": "1",
}  # fmt: skip


@pytest.fixture
def gateway(own_machine, monkeypatch):
    for name, value in OF_THE_SITE.items():
        monkeypatch.setenv(name, value)
    own_machine.kernelspec("python_kubernetes", theirs(image_name="elyra/kernel-py:3.2.3"))
    own_machine.kernelspec("spark_python", theirs(kind="yarn.YarnClusterProcessProxy"))
    found = Gateway(own_machine)
    yield found
    if found.process.poll() is None:
        end(found)


def test_variables_and_kernelspecs_of_an_enterprise_gateway_count(gateway):
    offered = gateway.call("GET", "/api/kernelspecs").json()["kernelspecs"]
    assert "python_kubernetes" in offered and "spark_python" not in offered
    with gateway.kernel("python_kubernetes", KERNEL_USERNAME="ada", FLAVOUR="vanilla") as kernel:
        done = kernel.open().run(GPU + "import os; print(os.environ['FLAVOUR'], 6 * 7)")
        assert (done.status, done.out) == ("ok", "vanilla 42\n"), done
        second = gateway.call("POST", "/api/kernels", json={"name": "python_kubernetes", "env": {"KERNEL_USERNAME": "ada"}})
        assert (second.status_code, "max_kernels_per_user is 1" in second.json()["message"]) == (429, True)
    denied = gateway.call("POST", "/api/kernels", json={"name": "python_kubernetes", "env": {"KERNEL_USERNAME": "mallory"}})
    assert (denied.status_code, denied.json()["reason"]) == (403, "forbidden")
    assert "EG_LIST_KERNELS does nothing here; instead: users list their own kernels, always." in gateway.log
    assert "isn't offered" in gateway.log


def test_the_interface_is_described_at_the_old_addresses(gateway):
    described = gateway.call("GET", "/api/swagger.json")
    assert (described.json()["swagger"], described.json()["basePath"]) == ("2.0", "/")
    assert gateway.call("GET", "/api/swagger.yaml").text.startswith("#")
    assert gateway.call("GET", "/api/swagger.json", headers={}).json() == described.json()  # whoever asks, as there
