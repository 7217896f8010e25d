"""A gateway comes and goes, its kernels stay; and what it says when it can't come up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.backends.processes import started
from gateway.protocol import websocket as ws
from tests.integration.machine import PATIENCE, Machine, until
from tests.integration.serving import GPU, Gateway, end, free_port

COUNTS = """
import itertools, os, time
for i in itertools.count():
    print(i, flush=True)
    time.sleep(.1)
    if os.path.exists('{flag}'):
        break
late = 'done'
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.case("K03")
def test_kernels_outlive_their_gateway_and_the_next_one_finds_them(own_machine, signum):
    gateway = Gateway(own_machine)
    idle, busy, gpu = (gateway.kernel() for _ in range(3))
    session = gateway.call("POST", "/api/sessions", json={"path": "a.ipynb", "type": "notebook", "kernel": {"id": idle.id}}).json()
    idle.open().run("v = 1")
    running = busy.open(protocol=ws.ELASTIC)
    running.run("v = 2")
    flag = own_machine.root / "flag"
    cell = running.begin(COUNTS.format(flag=flag))
    gpu.open().run(GPU + "v = 3")
    held = gpu.lease["gpus"]
    running.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
    gateway.stop(signum)
    code, _ = running.until_closed()
    assert code == (ws.CLOSE_RESTART if signum == signal.SIGTERM else 0)
    time.sleep(0.5)  # output in the gap
    gateway.start()
    try:
        states = {model["id"]: model["execution_state"] for model in gateway.call("GET", "/api/kernels").json()}
        assert states == {idle.id: "idle", busy.id: "busy", gpu.id: "idle"}, "listed without being asked for"
        assert gpu.lease["gpus"] == held, "leases are as before"
        flag.touch()
        after = max(m["n"] for m in running.messages)
        back = busy.open(protocol=ws.ELASTIC, session=running.session, after=after)
        queued = back.begin("print(late)")
        back.wait(lambda m: m["type"] == "execute_reply" and m["parent"] == cell)
        whole = [m for m in [*running.messages, *back.messages] if m["parent"] == cell and m["type"] == "stream"]
        lines = "".join(m["content"]["text"] for m in whole).splitlines()
        assert lines == [str(i) for i in range(len(lines))], "whole and once"
        assert len(lines) > 5
        assert back.finish(queued).out == "done\n"
        assert [kernel.open().run("print(v)").out for kernel in (idle, busy, gpu)] == ["1\n", "2\n", "3\n"]
        assert gateway.call("GET", f"/api/sessions/{session['id']}").json()["path"] == "a.ipynb"
        assert idle.call("POST", "/restart").status_code == 200, "an adopted kernel restarts"
        assert idle.open().run("print('back')").out == "back\n"
        assert idle.call("DELETE").status_code == 204
    finally:
        end(gateway)
    until(lambda: own_machine.supervisors() == [])


def test_a_kernel_whose_folder_was_removed_ends_once_nobody_can_reach_it(own_machine):
    gateway = Gateway(own_machine)
    kernel = gateway.kernel()
    kernel.open().run(GPU + f"import shutil; shutil.rmtree({str(own_machine.places.kernel(kernel.id))!r})")
    assert kernel.open().run("print('still here')").out == "still here\n"
    pid = int(kernel.open().run("import os; print(os.getppid())").out)
    gateway.stop()
    until(lambda: started(pid) is None)


def test_two_gateways_with_folders_of_their_own_never_put_two_kernels_on_one_gpu(own_machine):
    own_machine.configure(
        ElasticGateway={"simulated_gpus": 1}, Leases={"min_hold": 0.0}, LocalBackend={"lock_dir": str(own_machine.root / "locks")}
    )
    first = Gateway(own_machine)
    kernel = first.kernel()
    flag = own_machine.root / "flag"
    browser = kernel.open()
    cell = browser.begin(GPU + COUNTS.format(flag=flag))
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
    first.stop(signal.SIGKILL)
    second = Gateway(own_machine, f"LocalBackend.runtime_dir={own_machine.root / 'r2'}")
    try:
        other = second.kernel().open()
        waits = other.begin(GPU + "1")
        whose = f"process {own_machine.supervisors()[0]['pid']}"
        other.wait(lambda m: m["parent"] == waits and whose in json.dumps(m["content"]))
        first.start()
        assert kernel.lease["executing"]
        flag.touch()
        until(lambda: not kernel.lease["executing"])
        assert kernel.open().run(GPU + "print(late)").out == "done\n"
    finally:
        end(second)
        end(first)


def test_shutdown_with_kernels_ends_them_all_and_one_ctrl_c_ends_none(own_machine):
    gateway = Gateway(own_machine)
    kernel = gateway.kernel()
    kernel.open().run("v = 1")
    begun = time.monotonic()
    assert gateway.stop(signal.SIGINT) == 0
    assert time.monotonic() - begun < 10
    assert len(own_machine.supervisors()) == 1
    gateway.start()
    assert kernel.open().run("print(v)").out == "1\n"
    answer = gateway.call("POST", "/api/shutdown", json={"kernels": True})
    assert answer.json() == {"ended": 1}
    assert gateway.process.wait(PATIENCE) == 0
    until(lambda: own_machine.supervisors() == [])
    assert "Traceback" not in gateway.log


def complaint(machine: Machine, *args: str, env: dict[str, str] | None = None) -> str:
    """What a gateway says that doesn't come up."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "--allow-root", "--IdentityProvider.token=t", *args],
        env={**os.environ, **machine.env, **(env or {})}, cwd=machine.root, text=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_gateway_that_can_not_come_up_says_why_and_what_to_do(own_machine):
    gateway = Gateway(own_machine)
    try:
        assert "Port" in (said := complaint(own_machine, f"--port={gateway.port}"))
        assert "--port" in said
        assert "leases the GPUs" in complaint(own_machine, f"--port={free_port()}"), "one broker for a runtime folder"
    finally:
        end(gateway)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--Leases.idle_timout=3"], "Did you mean Leases.idle_timeout?"),
        (["--Lease.idle_timeout=3"], "Did you mean Leases"),
        (["--Leases.idle_timeout=-3"], "idle_timeout"),
        (["--Leases.idle_timeout=soon"], "idle_timeout"),
        (["--ElasticGateway.backend=mars"], "backend"),
        (["--NoSuchThing.x=1"], "--help-all"),
    ],
)
def test_a_setting_that_can_not_hold_is_named(own_machine, args, said):
    assert said in complaint(own_machine, f"--port={free_port()}", *args)


def test_a_misspelled_setting_in_a_file_is_named_too(own_machine):
    own_machine.configure(Leases={"idle_timout": 3})
    assert "Did you mean Leases.idle_timeout?" in complaint(own_machine, f"--port={free_port()}")


def test_a_value_that_can_not_be_is_told_with_those_that_can_and_the_file_it_stands_in(own_machine):
    own_machine.configure(ElasticGateway={"backend": "locl"})
    said = complaint(own_machine, f"--port={free_port()}")
    assert "ElasticGateway.backend can't be 'locl': it must be 'local' or 'kubernetes'." in said
    assert f"It is set in {own_machine.root / 'c/jupyter_elastic_gateway_config.json'}." in said
    assert "extensions" not in said


def test_a_configuration_file_that_is_not_there_or_makes_no_sense_stops_the_start(own_machine):
    file = own_machine.root / "mine.py"
    assert f"There is no configuration file {file}" in complaint(own_machine, f"--config={file}")
    for text, said in (("c.Leases.min_hold = (", "SyntaxError"), ("c.Leases.min_hold = 1\nc.x = 1 / 0", f"{file}, line 2")):
        file.write_text(text)
        assert said in complaint(own_machine, f"--config={file}")


@pytest.mark.case("C01", "C03")
def test_idle_kernels_are_culled_and_busy_ones_never(own_machine):
    gateway = Gateway(
        own_machine, "ElasticMappingKernelManager.cull_idle_timeout=3", "ElasticMappingKernelManager.cull_connected=True"
    )  # fmt: skip
    try:
        busy, idle, fresh = (gateway.kernel() for _ in range(3))
        quiet = busy.open()
        quiet.run("1")
        quiet.begin("import time; time.sleep(8); answer = 42")
        quiet.close()
        tab = idle.open()
        tab.run("1")
        assert tab.until_closed()[0] == ws.CLOSE_KERNEL_GONE
        said = [m["content"]["data"]["text/plain"] for m in tab.messages if m["type"] in ("display_data", "update_display_data")]
        assert ["will be ended in" in said[0], "was ended after" in said[-1]] == [True, True], said
        assert tab.states()[-1] == "dead"
        until(lambda: fresh.state == "404")
        assert busy.state == "busy", "a quiet cell that nobody watches is work"
        assert busy.open().run("print(answer)").out == "42\n"
    finally:
        end(gateway)


def test_limits_count_kernels_that_start(own_machine):
    gateway = Gateway(own_machine, "ElasticMappingKernelManager.max_kernels=2", "ElasticMappingKernelManager.max_kernels_per_user=1")
    try:
        with gateway.kernel(KERNEL_USERNAME="ada"):
            again = gateway.call("POST", "/api/kernels", json={"name": "elastic", "env": {"KERNEL_USERNAME": "ada"}})
            assert again.status_code == 429
            assert "ada" in again.json()["message"]
            with gateway.kernel(KERNEL_USERNAME="bob"):
                full = gateway.call("POST", "/api/kernels", json={"name": "elastic", "env": {"KERNEL_USERNAME": "cyd"}})
                assert full.status_code == 429
                assert full.json()["reason"] == "kernel_limit"
    finally:
        end(gateway)


def test_a_supervisor_that_is_killed_closes_the_cell_with_the_reason_and_the_kernel_can_be_restarted(gateway, gateway_machine):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        browser.run("1")
        cell = browser.begin("import time; time.sleep(600)")
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "execute_input")
        os.kill(next(each["pid"] for each in gateway_machine.supervisors() if each["kernel_id"] == kernel.id), signal.SIGKILL)
        done = browser.finish(cell)
        assert done.status == "error"
        assert "supervisor" in done.evalue
        browser.wait(lambda m: m["content"].get("execution_state") == "dead")
        assert "supervisor" in kernel.call("GET").json()["reason"]
        assert kernel.call("POST", "/restart").status_code == 200
        assert browser.run("print('back')").out == "back\n"


@pytest.mark.case("N01")
def test_a_batch_run_through_the_gateway_ends_also_when_its_kernel_dies(own_machine):
    gateway = Gateway(own_machine, token="")
    script = (
        "import sys, nbformat\nfrom nbclient import NotebookClient\nfrom jupyter_server.gateway.gateway_client import GatewayClient\n"
        "GatewayClient.instance().url = sys.argv[1]\n"
        "nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in ('a = 1', sys.argv[2], 'print(a)')])\n"
        "NotebookClient(nb, kernel_name='elastic', kernel_manager_class='jupyter_server.gateway.managers.GatewayKernelManager').execute()\n"
    )
    try:
        for code, status in (("print(6 * 7)", 0), ("import os; os._exit(1)", 1)):
            done = own_machine.run(script, gateway.url, code, stderr=subprocess.PIPE)
            assert done.wait(PATIENCE) == status, done.stderr.read()
            until(lambda: gateway.call("GET", "/api/kernels").json() == [])
    finally:
        end(gateway)


BATCH = """
import sys, nbformat
from jupyter_server.gateway.gateway_client import GatewayClient
GatewayClient.instance().url, GatewayClient.instance().auth_token = sys.argv[1], sys.stdin.readline()
manager = "gateway.lab.managers.ElasticGatewayKernelManager"
cells = [
    "import ipywidgets, matplotlib.pyplot as plt; from IPython.display import display; display(ipywidgets.Image(value=bytes(9)))",
    "%matplotlib inline\\nplt.plot([1, 4, 9]); plt.show()",
    "print(6 * 7)",
    "1 / 0",
]
nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
if sys.argv[2] == "nbclient":
    from nbclient import NotebookClient
    NotebookClient(nb, kernel_name="elastic", kernel_manager_class=manager, allow_errors=True).execute()
else:
    import papermill
    nbformat.write(nb, "in.ipynb")
    try:
        papermill.execute_notebook("in.ipynb", "out.ipynb", kernel_name="elastic", language="python", kernel_manager_class=manager)
    except papermill.PapermillExecutionError:
        nb = nbformat.read("out.ipynb", 4)
outputs = [output for cell in nb.cells if cell.cell_type == "code" for output in cell.outputs]
print("".join(output.get("text", "") for output in outputs if output.get("name") == "stdout").strip())
print("a plot" if any("image/png" in output.get("data", {}) for output in outputs) else "no plot")
print([output.ename for output in outputs if output.output_type == "error"])
"""


@pytest.mark.parametrize("program", ["nbclient", "papermill"])
def test_a_batch_run_with_our_client_has_credentials_plots_errors_and_binary_messages(gateway, gateway_machine, program):
    done = gateway_machine.run(BATCH, gateway.url, program, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    said, complained = done.communicate(gateway.token, timeout=PATIENCE)
    assert done.returncode == 0, complained
    assert said.splitlines() == ["42", "a plot", "['ZeroDivisionError']"], complained
    assert gateway.log.rstrip().rpartition(" starts (")[2].startswith("elastic)"), "the kernel that was named, and no other"


CONSOLE = "import sys; from jupyter_console.app import main; sys.exit(main())"


@pytest.mark.case("N03")
def test_a_console_joins_a_gateways_kernel_and_may_leave_it(gateway, gateway_machine):
    def console(*lines: str) -> str:
        run = gateway_machine.run(CONSOLE, "--existing", str(file), "--simple-prompt", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return run.communicate("\n".join([*lines, ""]), timeout=PATIENCE)[0]

    with gateway.kernel() as kernel:
        browser = kernel.open()
        browser.run("shared = 41")
        file = gateway_machine.root / "console.json"
        file.write_text(browser.run("import ipykernel; print(open(ipykernel.get_connection_file()).read())").out)
        assert "42" in console("print(shared + 1)", "exit(keep_kernel=True)")
        assert browser.run("print(shared)").out == "41\n"
        assert "42" in console("print(shared + 1)", "exit")  # which ends the kernel
        browser.wait(lambda m: m["content"].get("execution_state") == "restarting")
        until(lambda: browser.run("print('back')").out == "back\n")
        assert browser.run("shared").ename == "NameError"


@pytest.mark.case("X08")
def test_a_gateway_listens_on_its_own_port_alone_so_nobody_can_announce_anything(gateway):
    with gateway.kernel() as kernel:
        kernel.open().run("1")
        fds = Path(f"/proc/{gateway.process.pid}/fd").iterdir()
        inodes = {os.readlink(fd).removeprefix("socket:[").removesuffix("]") for fd in fds if os.path.lexists(fd)}
        listening = set()
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *_, inode = line.split()[:10]
                if inode in inodes and (state == "0A" or table.startswith("udp")):
                    listening.add((table[:3], int(local.rpartition(":")[2], 16)))
        assert listening == {("tcp", gateway.port)}


class WithoutToken(Gateway):
    """Nobody has set its token."""

    def configuration(self) -> str:
        return f"c.ServerApp.allow_root = True\nc.ServerApp.port = {self.port}\n"

    def lets_in(self, token: str) -> bool:
        return self.call("GET", "/api/kernels", headers={"Authorization": f"token {token}"}).ok


def test_a_token_that_nobody_set_is_that_of_the_last_start_until_its_file_is_removed(own_machine):
    gateway = WithoutToken(own_machine)
    file = own_machine.places.gateways / "gateway.token"
    try:
        token = file.read_text().strip()
        assert len(token) > 32 and file.stat().st_mode & 0o777 == 0o600
        assert gateway.lets_in(token) and not gateway.lets_in("")
        gateway.stop(signal.SIGKILL)
        gateway.start()
        assert gateway.lets_in(token), "whoever was connected goes on"
        assert token not in gateway.log and str(file) in gateway.log
        gateway.stop()
        file.unlink()
        gateway.start()
        assert not gateway.lets_in(token) and gateway.lets_in(file.read_text().strip())
    finally:
        gateway.stop()
    file.unlink()
    configured = Gateway(own_machine)
    configured.stop()
    assert not file.exists()
