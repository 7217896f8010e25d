"""A site that stays on Enterprise Gateway 3.3 and has its kernels run by an elastic gateway: both real, the former unmodified."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.enterprise.gateways import Enterprise
from tests.integration.machine import Machine, until
from tests.integration.serving import GPU, end
from tests.integration.users import TOKENS, Someone, serve_users

pytestmark = pytest.mark.timeout(600)  # an environment for it may have to be made first


@pytest.fixture(scope="module")
def elastic() -> Iterator[Someone]:
    """As its front end sees it."""
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    site = serve_users(machine, "ElasticMappingKernelManager.allowed_envs=['FLAVOUR']")
    front_end = Someone(site, TOKENS["lab"])
    front_end.site = site
    yield front_end
    if site.process.poll() is None:
        site.headers = {"Authorization": f"token {TOKENS['ops']}"}
        end(site)
    machine.clean()


@pytest.fixture(scope="module")
def enterprise(elastic: Someone) -> Iterator[Enterprise]:
    found = Enterprise(elastic, "EnterpriseGatewayApp.client_envs=['FLAVOUR','NOT_LET_IN']", "EnterpriseGatewayApp.list_kernels=True")
    yield found
    found.stop()


def start(enterprise: Enterprise, name: str, **env: str) -> requests.Response:
    return enterprise.call("POST", "/api/kernels", json={"name": name, "env": {"KERNEL_USERNAME": "ada", **env}})


def test_a_kernel_of_enterprise_gateway_leases_a_gpu_for_its_cells(enterprise, elastic):
    with enterprise.kernel(KERNEL_USERNAME="ada", FLAVOUR="vanilla", NOT_LET_IN="x") as kernel:
        page = kernel.open(protocol=None)
        done = page.run(
            GPU + "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['FLAVOUR'], os.environ.get('NOT_LET_IN'),"
            " [name for name in os.environ if 'SECRET' in name])"
        )
        assert (done.status, done.out.split()[1:]) == ("ok", ["vanilla", "None", "[]"]), done
        lease = next(lease for lease in elastic.gpu()["leases"] if lease["kernel_id"] == kernel.id)
        assert (lease["user"], lease["phase"]) == ("ada", "HOLDING")


def test_output_errors_input_and_binary_messages_pass_as_they_are(enterprise):
    with enterprise.kernel() as kernel:
        page = kernel.open(protocol=None)
        lines = page.run("for i in range(500): print(i, flush=True)")
        assert lines.out.split() == [str(i) for i in range(500)]
        assert page.run("1/0").ename == "ZeroDivisionError"
        asks = page.begin("print(input('who? '))", allow_stdin=True)
        page.wait(lambda m: m["type"] == "input_request")
        page.send("input_reply", {"value": "me"}, channel="stdin")
        assert page.finish(asks).out == "me\n"
        page.run(
            "from comm import create_comm\n"
            "def opened(comm, _):\n    comm.on_msg(lambda m: comm.send({}, buffers=[bytes(m['buffers'][0])[::-1]]))\n"
            "get_ipython().kernel.comm_manager.register_target('echo', opened)"
        )
        page.send("comm_open", {"comm_id": "c", "target_name": "echo", "data": {}})
        page.send("comm_msg", {"comm_id": "c", "data": {}}, buffers=(b"\x00\xff\x01",))
        assert page.wait(lambda m: m["type"] == "comm_msg")["buffers"] == [b"\x01\xff\x00"]


def test_each_of_two_pages_gets_the_answers_to_its_own_requests(enterprise):
    with enterprise.kernel() as kernel:
        one, two = kernel.open(protocol=None), kernel.open(protocol=None)
        first, second = one.begin("x = 1"), two.begin("print(x)")
        assert (one.finish(first).status, two.finish(second).out) == ("ok", "1\n")
        assert not [m for m in one.messages if m["channel"] == "shell" and m["parent"] == second]


def test_a_cell_is_interrupted_and_the_kernel_restarted(enterprise):
    with enterprise.kernel() as kernel:
        page = kernel.open(protocol=None)
        runs = page.begin("x = 1\nprint('on', flush=True)\nimport time; time.sleep(600)")
        page.wait(lambda m: m["content"].get("text", "").startswith("on"))
        assert kernel.call("POST", "/interrupt").status_code == 204
        assert page.finish(runs).ename == "KeyboardInterrupt"
        assert kernel.call("POST", "/restart").status_code == 200
        again = kernel.open(protocol=None)
        assert again.run("print('x' in dir())").out == "False\n"


def test_starts_restarts_and_ends_leave_neither_error_nor_warning_in_either_log(enterprise, elastic):
    before = [len(gateway.log_file.read_text()) for gateway in (enterprise, elastic.site)]
    for restarts in (0, 1, 2):
        kernel = enterprise.kernel()
        page = kernel.open(protocol=None)
        assert page.run("print(1)").out == "1\n"
        for _ in range(restarts):
            assert kernel.call("POST", "/restart").status_code == 200
        page.close()
        assert kernel.call("DELETE").status_code == 204
    logs = [gateway.log_file.read_text()[start:] for gateway, start in zip((enterprise, elastic.site), before, strict=True)]
    alarms = [line for log in logs for line in log.splitlines() if re.match(r"\[[WEC] |Traceback", line)]
    assert [line for line in alarms if "websocket_ping_timeout" not in line] == []  # Enterprise Gateway's own settings, once


def test_a_kernel_that_is_ended_at_either_gateway_is_gone_at_both(enterprise, elastic):
    here, there = enterprise.kernel(), enterprise.kernel()
    assert here.call("DELETE").status_code == 204
    assert elastic.call("GET", f"/api/kernels/{here.id}").status_code == 404
    with there:
        page = there.open(protocol=None)
        page.run("x = 1")
        assert elastic.call("DELETE", f"/api/kernels/{there.id}").status_code == 204
        # Enterprise Gateway's own restarter finds it dead and has another one started under its id
        until(lambda: elastic.call("GET", f"/api/kernels/{there.id}").status_code == 200)
        until(lambda: there.open(protocol=None).run("print('x' in dir())").out == "False\n")


def test_a_kernel_that_cannot_start_is_told_in_the_elastic_gateways_words(enterprise, elastic):
    enterprise.kernelspec("nowhere", kernel_name="no-such-spec")
    refused = start(enterprise, "nowhere")
    assert (refused.status_code, "There is no kernel named 'no-such-spec' here" in refused.text) == (404, True), refused.text
    elastic.machine.kernelspec(
        "dies", {"display_name": "dies", "language": "python", "argv": ["python", "-c", "import sys; sys.exit('no such licence')"]}
    )
    enterprise.kernelspec("mortal", kernel_name="dies")
    dead = start(enterprise, "mortal")
    assert (dead.status_code, "no such licence" in dead.text) == (500, True), dead.text
    enterprise.kernelspec("unreachable", url="http://127.0.0.1:9")
    away = start(enterprise, "unreachable")
    assert (away.status_code, "can't be reached" in away.text) == (500, True), away.text
    enterprise.kernelspec("stranger", token_file="/nonexistent/token")
    assert "token of the elastic gateway can't be read" in start(enterprise, "stranger").text
    for text, said in (("wrong", "token is missing or wrong"), ("two\nlines", "in one line")):
        (enterprise.root / "no-token").write_text(text)
        enterprise.kernelspec("intruder", token_file=str(enterprise.root / "no-token"))
        assert said in start(enterprise, "intruder").text
    enterprise.kernelspec("elsewhere", url="ftp://gateway")
    assert "set url in the kernelspec's process_proxy.config" in start(enterprise, "elsewhere").text


def test_a_kernel_of_somebody_else_is_not_taken_over_by_naming_its_id(enterprise, elastic):
    theirs = elastic.kernel("elastic", KERNEL_USERNAME="bo")
    with theirs:
        refused = start(enterprise, "elastic", KERNEL_ID=theirs.id)
        assert (refused.status_code, "somebody else" in refused.text) == (403, True), refused.text
        assert theirs.open().run("print('still mine')").out == "still mine\n"


def test_a_killed_elastic_gateway_costs_no_line_and_queued_cells_run(enterprise, elastic):
    with enterprise.kernel() as kernel:
        page = kernel.open(protocol=None)
        page.run("import time")
        runs = page.begin("for i in range(60):\n    print(i, flush=True)\n    time.sleep(0.05)")
        page.wait(lambda m: m["content"].get("text", "").startswith("10"))
        elastic.site.stop(signal.SIGKILL)
        behind = page.begin("print('behind it')")
        elastic.site.start()
        assert page.finish(runs).out.split() == [str(i) for i in range(60)]
        assert page.finish(behind).out == "behind it\n"


def test_an_enterprise_gateway_that_stops_takes_its_kernels_along_and_one_that_keeps_sessions_finds_them(elastic):
    found = Enterprise(elastic, "FileKernelSessionManager.enable_persistence=True", "EnterpriseGatewayApp.availability_mode=standalone")
    kernel = found.kernel()
    kernel.open(protocol=None).run("x = 'kept'")
    found.stop(signal.SIGKILL)
    found.start()
    assert kernel.open(protocol=None).run("print(x)").out == "kept\n"
    found.stop()
    until(lambda: elastic.call("GET", f"/api/kernels/{kernel.id}").status_code == 404)
