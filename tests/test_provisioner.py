"""What a kernel is started with: command, environment, limits."""

from __future__ import annotations

import asyncio
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from traitlets.config import Config, Configurable

from gateway.broker.broker import Broker
from gateway.protocol.errors import LaunchError
from gateway.provisioner import ElasticProvisioner
from gateway.settings import Leases
from tests.doubles.fake_backend import FakeBackend


class Gateway(Configurable):
    elastic_broker: Any = None


def provisioner(gateway: bool = False, argv: tuple[str, ...] = ("k", "-f", "{connection_file}"), **config: Any) -> ElasticProvisioner:
    parent = Gateway(config=Config(config.pop("settings", {})))
    if gateway:
        parent.elastic_broker = Broker(owner="lab", backend=FakeBackend(), leases=Leases())
    manager = AsyncKernelManager(parent=parent, **config.pop("manager", {}))
    spec = KernelSpec(argv=list(argv), language="Python", resource_dir="/res", env=config.pop("spec_env", {}))
    return ElasticProvisioner(kernel_id="k1", kernel_spec=spec, parent=manager, **config)


def launched(found: ElasticProvisioner, **kwargs: Any) -> dict[str, Any]:
    return asyncio.run(found.pre_launch(**kwargs))


def test_the_connection_file_is_left_to_the_supervisor_and_all_else_is_filled_in() -> None:
    found = provisioner(argv=("k", "--id={kernel_id}", "{resource_dir}/x", "{unknown}", "-f", "{connection_file}"))
    result = launched(found, env={}, extra_arguments=["--more"], connection_file="/forged")
    assert result["cmd"] == ["k", "--id=k1", "/res/x", "{unknown}", "-f", "{connection_file}", "--more"]


def test_python_is_the_python_we_run_on() -> None:
    assert launched(provisioner(argv=("python3", "-m", "k")), env={})["cmd"][0] == sys.executable


def test_a_gateways_kernel_inherits_only_the_names_that_the_admin_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("LISTED", "yes")
    found = provisioner(gateway=True, spec_env={"FROM_SPEC": "${KERNEL_USERNAME}+${AWS_SECRET_ACCESS_KEY}"})
    env = launched(found, env={"KERNEL_USERNAME": "ada"})["env"]
    assert env["PATH"] == "/bin"
    assert env["KERNEL_USERNAME"] == "ada"
    assert env["FROM_SPEC"] == "ada+${AWS_SECRET_ACCESS_KEY}"
    assert "AWS_SECRET_ACCESS_KEY" not in env
    listed = {"LocalBackend": {"inherited_env": ["LISTED"]}}
    assert launched(provisioner(gateway=True, settings=listed))["env"] == {"LISTED": "yes"}


def test_a_direct_callers_kernel_inherits_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLERS_OWN", "yes")
    assert launched(provisioner())["env"]["CALLERS_OWN"] == "yes"
    assert launched(provisioner(), env={"A": "1"})["env"] == {"A": "1"}


def test_ports_that_leave_the_machine_are_encrypted_and_local_ones_on_demand() -> None:
    def key(**manager: Any) -> Any:
        found = provisioner(manager=manager)
        launched(found, env={})
        return found.parent.curve_publickey

    assert key() is None
    assert key(ip="0.0.0.0") is not None
    assert key(transport_encryption="auto") is not None


def test_keys_are_kept_over_restarts() -> None:
    found = provisioner(manager={"transport_encryption": "auto"})
    launched(found, env={})
    key = found.parent.curve_secretkey
    launched(found, env={})
    assert found.parent.curve_secretkey == key


def test_ports_that_can_not_be_encrypted_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.provisioner.zmq", SimpleNamespace(has=lambda name: False))
    with pytest.raises(LaunchError, match="CurveZMQ"):
        launched(provisioner(manager={"ip": "0.0.0.0"}), env={})


def test_the_supervisor_is_told_who_owns_it_and_what_it_may_use() -> None:
    found = provisioner(gateway=True, manager={"shell_port": 5001})
    spec = found._spec(["k"], {"KERNEL_USERNAME": "o'neil", "JPY_SESSION_NAME": "a/b/c.ipynb", "KERNEL_GPUS": "2"}, "/tmp")
    assert (spec.owner, spec.owner_pid, spec.user, spec.display, spec.gpus) == ("lab", None, "o'neil", "c.ipynb", 2)
    assert spec.ports == {"shell": 5001}
    assert spec.language == "python"
    outside = provisioner(settings={"ElasticGateway": {"simulated_gpus": 1}, "SimulatedGpu": {"park_seconds": 9}})._spec(["k"], {}, "/tmp")
    assert (outside.owner, outside.owner_pid) == ("", os.getpid())
    assert outside.owner_started
    assert outside.simulated == {"park_seconds": 9, "seconds_per_gb": 0.1}


def test_a_signature_that_supervisors_do_not_know_is_refused() -> None:
    found = provisioner()
    found.parent.session.signature_scheme = "hmac-sha512"
    with pytest.raises(LaunchError, match="hmac-sha512"):
        found._spec(["k"], {}, "/tmp")


def test_a_path_is_found_from_the_kernels_folder(tmp_path: Any) -> None:
    found = provisioner()
    (tmp_path / "a.py").write_text("")
    found.cwd = str(tmp_path)
    assert found.resolve_path("a.py") == str(tmp_path / "a.py")
    assert found.resolve_path("missing.py") is None
