"""Kernels without any gateway: jupyter_client's own managers, nbclient, papermill and a plain server on the provisioner."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from gateway.backends.processes import started
from gateway.broker.client import request
from gateway.protocol.errors import BadRequest, LaunchError, LaunchTimeout
from gateway.provisioner import ElasticProvisioner
from tests.integration.machine import Machine, kernel, machine, run, until

__all__ = ["machine"]

GPU_CELL = "%%gpu\nimport os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"


def notebook(*cells: str) -> nbformat.NotebookNode:
    kernelspec = {"name": "elastic", "display_name": "Elastic", "language": "python"}
    return nbformat.v4.new_notebook(metadata={"kernelspec": kernelspec}, cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def test_a_blocking_manager_starts_runs_restarts_and_ends_a_kernel(machine: Machine) -> None:
    with kernel() as (manager, client):
        assert run(client, "x = 42; print(x)") == "42"
        assert run(client, GPU_CELL) == "GPU-SIM-0"
        assert manager.is_alive()
        before = machine.supervisors()[0]["pid"]
        manager.restart_kernel()
        client.wait_for_ready(timeout=60)
        assert run(client, "print('x' in dir())") == "False"
        assert machine.supervisors()[0]["pid"] == before
        assert run(client, GPU_CELL) == "GPU-SIM-0"
        manager.shutdown_kernel()
        assert not manager.is_alive()
    assert list((machine.root / "r/elastic/k").iterdir()) == []


def test_an_interrupt_ends_the_cell_and_leaves_the_kernel(machine: Machine) -> None:
    with kernel() as (manager, client):
        run(client, "x = 1")
        message = client.execute("import time\nprint('on', flush=True)\ntime.sleep(600)")
        until(lambda: client.get_iopub_msg(timeout=60)["msg_type"] == "stream")
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=60)
        assert reply["parent_header"]["msg_id"] == message
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert run(client, "print(x)") == "1"


def test_a_kernel_inherits_the_environment_of_a_direct_caller(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLERS_OWN", "yes")
    with kernel() as (_, client):
        assert run(client, "import os; print(os.environ['CALLERS_OWN'])") == "yes"


def test_files_that_a_kernel_makes_are_open_to_whom_its_caller_lets_them_be(machine: Machine) -> None:
    before = os.umask(0o027)
    try:
        with kernel() as (_, client):
            assert run(client, "import os; print(oct(os.umask(0o777)))") == "0o27"
    finally:
        os.umask(before)


def test_the_broker_is_one_for_all_and_its_socket_is_private(machine: Machine) -> None:
    with kernel() as (_, one):
        run(one, GPU_CELL)
        pid = machine.broker()["pid"]
        assert os.stat(machine.places.broker_socket).st_mode & 0o777 == 0o600
        with kernel() as (_, two):
            assert run(two, GPU_CELL) == "GPU-SIM-0"
            assert machine.broker()["pid"] == pid
            phases = {lease["phase"] for lease in request(machine.places, "snapshot")["snapshot"]["leases"]}
            assert phases == {"PARKED", "HOLDING"}


def test_a_broker_that_is_killed_is_replaced_and_no_cell_waits_for_ever(machine: Machine) -> None:
    with kernel() as (_, client):
        run(client, GPU_CELL)
        old = machine.broker()
        os.kill(old["pid"], signal.SIGKILL)
        with kernel() as (_, other):
            assert run(other, GPU_CELL) == "GPU-SIM-0"
        assert run(client, GPU_CELL) == "GPU-SIM-0"
        assert machine.broker()["generation"] > old["generation"]


def test_what_the_broker_grants_decides_whether_a_kernels_gpus_are_simulated(machine: Machine) -> None:
    with kernel() as (_, one):
        run(one, GPU_CELL)
        machine.configure(Leases={"min_hold": 0.0})  # what the next caller reads: nothing of simulated GPUs
        with kernel() as (_, two):
            assert run(two, GPU_CELL) == "GPU-SIM-0"
            run(two, "%%cpu\n%gpu simulate 1GB")
            assert run(one, GPU_CELL) == "GPU-SIM-0"  # so the other could be parked
            parked = {lease["parked_bytes"] for lease in request(machine.places, "snapshot")["snapshot"]["leases"]}
            assert parked == {0, 10**9}


def test_a_broker_notices_a_changed_configuration_and_makes_way_once_it_serves_nobody(machine: Machine) -> None:
    with kernel() as (_, client):
        assert run(client, GPU_CELL) == "GPU-SIM-0"
        pid = machine.broker()["pid"]
        machine.configure(ElasticGateway={"simulated_gpus": 3}, Leases={"min_hold": 0.0})
        until(lambda: machine.broker()["outdated"])
    with kernel() as (_, client):
        assert machine.broker()["pid"] != pid
        assert len(request(machine.places, "snapshot")["snapshot"]["gpus"]) == 3
        assert run(client, GPU_CELL).startswith("GPU-SIM-")


def test_two_processes_never_hold_one_gpu_at_a_time(machine: Machine) -> None:
    """The cells would fail if the other's were running."""
    code = """
import sys, nbformat
from nbclient import NotebookClient
cell = "%%gpu\\nimport os, time\\nos.close(os.open('busy', os.O_CREAT | os.O_EXCL)); time.sleep(0.05); os.unlink('busy')"
cells = [nbformat.v4.new_code_cell(cell) for _ in range(6)]
NotebookClient(nbformat.v4.new_notebook(cells=cells), kernel_name="elastic").execute()
"""
    processes = [machine.run(code) for _ in range(2)]
    assert [process.wait(100) for process in processes] == [0, 0]


def test_a_kernel_ends_with_the_process_that_started_it(machine: Machine) -> None:
    code = """
import time
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name="elastic")
manager.start_kernel()
print("up", flush=True)
time.sleep(600)
"""
    owner = machine.run(code)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    info = machine.supervisors()[0]
    owner.kill()
    owner.wait()
    until(lambda: started(info["pid"]) != info["started"])
    until(lambda: list((machine.root / "r/elastic/k").iterdir()) == [])


def test_a_kernel_that_dies_at_start_leaves_its_last_words_and_nothing_else(machine: Machine) -> None:
    machine.variant("dying", argv=["python", "-c", "import sys; sys.exit('no module named torch, says the kernel')", "{connection_file}"])
    with pytest.raises(LaunchError, match="no module named torch"):
        KernelManager(kernel_name="dying").start_kernel()
    until(lambda: list((machine.root / "r/elastic/k").iterdir()) == [])


def test_a_command_that_is_not_there_is_told(machine: Machine) -> None:
    machine.variant("missing", argv=["/no/such/kernel", "{connection_file}"])
    with pytest.raises(LaunchError, match="/no/such/kernel"):
        KernelManager(kernel_name="missing").start_kernel()
    until(lambda: list((machine.root / "r/elastic/k").iterdir()) == [])


def test_a_folder_that_is_not_there_is_told(machine: Machine) -> None:
    with pytest.raises(LaunchError, match="/no/such/folder"):
        KernelManager(kernel_name="elastic").start_kernel(cwd="/no/such/folder")


def test_a_launch_timeout_says_which_setting_applied_and_leaves_nothing(machine: Machine) -> None:
    machine.variant("slow", argv=["bash", "-c", "sleep 600", "{connection_file}"])
    env = {**os.environ, "KERNEL_LAUNCH_TIMEOUT": "1"}
    with pytest.raises(LaunchTimeout, match=r"1 seconds \(this request's KERNEL_LAUNCH_TIMEOUT\)"):
        KernelManager(kernel_name="slow").start_kernel(env=env)
    until(lambda: list((machine.root / "r/elastic/k").iterdir()) == [])


def test_a_wish_for_gpus_that_makes_no_sense_starts_nothing(machine: Machine) -> None:
    with pytest.raises(BadRequest, match="KERNEL_GPUS"):
        KernelManager(kernel_name="elastic").start_kernel(env={**os.environ, "KERNEL_GPUS": "many"})
    assert machine.supervisors() == []


def test_more_gpus_than_there_are_end_the_cell_with_an_error(machine: Machine) -> None:
    with kernel(env={**os.environ, "KERNEL_GPUS": "2"}) as (_, client):
        reply = client.execute_interactive(GPU_CELL, timeout=60, output_hook=lambda message: None)
        assert reply["content"]["status"] == "error"
        assert "2 GPUs" in reply["content"]["evalue"]


def test_a_kernel_without_gpus_needs_no_broker(machine: Machine) -> None:
    with kernel(env={**os.environ, "KERNEL_GPUS": "0"}) as (_, client):
        run(client, GPU_CELL)
        assert not os.path.exists(machine.places.broker_socket)


def test_encrypted_ports_serve_who_has_the_key_and_nobody_else(machine: Machine) -> None:
    machine.variant("encrypted", metadata={"supported_encryption": "curve"})
    with kernel("encrypted", manager={"transport_encryption": "required"}) as (manager, client):
        assert run(client, "print(1)") == "1"
        assert machine.supervisors()[0]["connection"]["curve_publickey"]
        manager.restart_kernel()
        client.wait_for_ready(timeout=60)
        assert run(client, "print(2)") == "2"
        plain = manager.client(curve_publickey=None, curve_secretkey=None)
        plain.start_channels()
        with pytest.raises(RuntimeError):
            plain.wait_for_ready(timeout=1)
        plain.stop_channels()


def test_nbclient_runs_a_notebook_and_stops_at_an_error(machine: Machine) -> None:
    good = notebook("x = 1", GPU_CELL, "x + 1")
    NotebookClient(good, kernel_name="elastic").execute()
    assert good.cells[1].outputs[0].text == "GPU-SIM-0\n"
    assert good.cells[2].outputs[0].data["text/plain"] == "2"
    bad = notebook("1/0", "print('never')")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        NotebookClient(bad, kernel_name="elastic").execute()
    assert machine.supervisors() == []


@pytest.mark.case("N01")
def test_nbclient_sees_a_kernel_die(machine: Machine) -> None:
    with pytest.raises((DeadKernelError, CellExecutionError)):
        NotebookClient(notebook("import os; os._exit(3)"), kernel_name="elastic").execute()
    until(lambda: machine.supervisors() == [])


def test_papermill_runs_a_notebook(machine: Machine) -> None:
    papermill = pytest.importorskip("papermill", reason="papermill is not installed: install the package's test extra")
    source, target = machine.root / "in.ipynb", machine.root / "out.ipynb"
    nbformat.write(notebook("n = 1", GPU_CELL, "print(n)"), source)
    papermill.execute_notebook(str(source), str(target), parameters={"n": 2}, kernel_name="elastic", progress_bar=False)
    assert any(output.text == "GPU-SIM-0\n" for cell in nbformat.read(target, 4).cells for output in cell.outputs)


def test_jupyter_execute_runs_a_notebook_where_it_lies_and_its_exit_status_tells_of_an_error(machine: Machine) -> None:
    for code, status, said in ((GPU_CELL, 0, "GPU-SIM-0\n"), ("1 / 0", 1, None)):
        source = machine.root / "in.ipynb"
        nbformat.write(notebook(code), source)
        argv = [sys.executable, "-m", "jupyter", "execute", "--inplace", "--kernel_name=elastic", str(source)]
        done = subprocess.run(argv, env={**os.environ, **machine.env}, capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done.stderr
        if said is not None:
            assert [output.text for cell in nbformat.read(source, 4).cells for output in cell.outputs] == [said]


def test_a_kernel_of_another_language_waits_for_its_gpu_too(machine: Machine) -> None:
    pytest.importorskip("bash_kernel", reason="bash_kernel is not installed: install the package's test extra")
    machine.variant("bash", argv=["python", "-m", "bash_kernel", "-f", "{connection_file}"], language="bash")
    with kernel("bash") as (_, client):
        assert run(client, "echo hello") == "hello"
        assert request(machine.places, "snapshot")["snapshot"]["leases"][0]["phase"] == "HOLDING"


def test_another_process_can_take_a_kernel_over(machine: Machine) -> None:
    with kernel() as (manager, client):
        run(client, "x = 5")
        info = asyncio.run(manager.provisioner.get_provisioner_info())
        other = ElasticProvisioner(kernel_spec=manager.kernel_spec)
        asyncio.run(other.load_provisioner_info(info))
        assert other.kernel_id == manager.kernel_id
        assert other.has_process
        assert asyncio.run(other.poll()) is None
        assert other.connection_info == info["connection_info"]


def test_a_plain_jupyter_server_starts_restarts_and_ends_kernels(machine: Machine) -> None:
    options = ["--no-browser", "--port=0", "--allow-root", "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"]
    code = f"import sys; from jupyter_core.command import main; sys.argv = {['jupyter', 'server', *options]!r}; main()"
    with (machine.root / "log").open("w") as log:
        server = machine.run(code, stderr=log)
    try:
        found = until(lambda: list((machine.root / "r").glob("jpserver-*.json")))
        url = json.loads(found[0].read_text())["url"]

        def ask(method: str, path: str, body: Any = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            with urllib.request.urlopen(urllib.request.Request(url + path, data, method=method), timeout=60) as answer:
                return json.loads(answer.read() or b"null")

        def listens() -> bool:  # stock servers write that file before they do
            try:
                return bool(ask("GET", "api"))
            except urllib.error.URLError:
                return False

        until(listens)
        path = f"api/kernels/{ask('POST', 'api/kernels', {'name': 'elastic'})['id']}"
        client = BlockingKernelClient(connection_file=str(next((machine.root / "r").glob("kernel-*.json"))))
        client.load_connection_file()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        assert run(client, GPU_CELL + "; x = 1") == "GPU-SIM-0"
        ask("POST", f"{path}/interrupt")
        assert run(client, "print(x)") == "1"
        ask("POST", f"{path}/restart")
        assert run(client, "print('x' in dir())") == "False"
        client.stop_channels()
        ask("DELETE", path)
        assert machine.supervisors() == []
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
