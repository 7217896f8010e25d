"""Kernels through the gateway's REST: how they start, what they are given, how they end and why."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time

import pytest

from gateway.protocol import websocket as ws
from tests.integration.machine import until
from tests.integration.serving import Browser, Cell, Gateway, Kernel


def settled(browser: Browser, code: str) -> Cell:
    """After an error ipykernel goes on for a moment to abort what comes; no human is so quick."""
    while (cell := browser.run(code)).status == "aborted":
        pass
    return cell


def raw(gateway: Gateway, method: str, path: str, body: str | None = None, token: bool = True) -> tuple[int, str]:
    """No client in between that would tidy the path up."""
    line = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    headers = gateway.headers if token else {}
    line.request(method, path, body, headers | ({"Content-Type": "application/json"} if body is not None else {}))
    response = line.getresponse()
    return response.status, response.read().decode("utf-8", "replace")


def test_a_start_is_answered_before_the_kernel_is_up(gateway):
    begun = time.monotonic()
    with gateway.kernel("slow") as kernel:
        assert kernel.state == "starting"
        browser = kernel.open()
        assert time.monotonic() - begun < 2, "the handshake doesn't wait for the kernel"
        assert browser.run("print(6 * 7)").out == "42\n"


@pytest.mark.case("S03")
def test_every_text_reaches_the_kernel_as_it_was_sent(gateway):
    values = ["yes", "0123", "a: b # c", "{x: [1, 2]}", "'\"`\\", "line1\nline2\n", "\ttab", "日本 👩‍🔬", "", " pad ", "---"]
    values += ["{{ 7*7 }} ${HOME} $(id) %s", "$(HOME)", "*x &y !!z |", "z" * 20_000]
    env = {f"KERNEL_QA_{at}": value for at, value in enumerate(values)} | {"KERNEL_USERNAME": "Ana Maria O'Neil@example.org"}
    with gateway.kernel(**env) as kernel:
        code = "import os, json, base64; print(base64.b64encode(json.dumps(dict(os.environ)).encode()).decode())"
        got = json.loads(base64.b64decode(kernel.open().run(code).out))
    assert {name: got.get(name) for name in env} == env
    assert "SECRET_OF_THE_GATEWAY" not in got, "a kernel never inherits the gateway's own environment"
    assert gateway.token not in got.values()


@pytest.mark.case("S01")
def test_whatever_a_user_is_called_a_kernel_starts_and_knows_the_name(gateway):
    users = ["ana.maria", "Ana-Maria", "ana_maria", "ana@example.org", "ANA MARIA", "o'neil", "123", "Ünï 日本"]
    kernels = [gateway.kernel(KERNEL_USERNAME=user) for user in users]
    try:
        said = [kernel.open().run("import os; print(os.environ['KERNEL_USERNAME'])").out for kernel in kernels]
    finally:
        for kernel in kernels:
            kernel.__exit__()
    assert said == [f"{user}\n" for user in users]


@pytest.mark.case("X01")
@pytest.mark.parametrize("name", ["KERNEL_POD_NAME", "KERNEL_NAMESPACE", "KERNEL_IMAGE", "KERNEL_USERNAME", "KERNEL_WORKING_DIR"])
def test_template_text_in_a_name_is_text(gateway, name):
    log = len(gateway.log)
    values = ["qa-{{ 7*7 }}", "{% for x in [1,2] %}q{% endfor %}", "qa-${7*7}", "qa-#{7*7}", "{{ kernel_id }}"]
    for value in values:
        answer = gateway.call("POST", "/api/kernels", json={"name": "elastic", "env": {name: value}})
        assert answer.status_code in (201, 400)
        if answer.status_code == 201:
            with Kernel(gateway, answer.json()["id"]) as kernel:
                answer_text = json.dumps({**answer.json(), "id": "", "last_activity": ""})
                assert "49" not in answer_text and "qq" not in answer_text
                if value == values[0]:
                    assert kernel.open().run(f"import os; print(os.environ[{name!r}])").out == f"{value}\n"
    assert "qa-49" not in gateway.log[log:] and "qq" not in gateway.log[log:]


def test_one_kernels_environment_never_reaches_another(gateway):
    with gateway.kernel(KERNEL_SECRET="bob") as first, gateway.kernel() as second:
        code = "import os; print(os.environ.get('KERNEL_SECRET'))"
        assert first.open().run(code).out == "bob\n"
        assert second.open().run(code).out == "None\n"


def test_only_allowed_variables_come_in(gateway):
    with gateway.kernel(ALLOWED="1", PYTHONSTARTUP="/evil", LD_PRELOAD="/evil") as kernel:
        out = kernel.open().run("import os; print([os.environ.get(n) for n in ('ALLOWED', 'PYTHONSTARTUP', 'LD_PRELOAD')])").out
    assert out == "['1', None, None]\n"


@pytest.mark.parametrize("name", ["../../etc", "..%2f..%2fetc", "/etc/passwd", "py\0", "a b", "n" * 10_000, 7, {}, ["x"], "p/../p"])
@pytest.mark.case("X03")
def test_a_kernel_name_with_tricks_is_refused(gateway, name):
    status, text = raw(gateway, "POST", "/api/kernels", json.dumps({"name": name}))
    assert status == 400
    assert len(text) < 300


def test_an_unknown_kernelspec_is_named_with_those_there_are(gateway):
    response = gateway.call("POST", "/api/kernels", json={"name": "nonesuch"})
    assert response.status_code == 404
    assert response.json()["reason"] == "no_such_kernelspec"
    assert "elastic" in response.json()["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/kernelspecs/..%2f..%2fetc%2fpasswd", "/api/kernelspecs/%2e%2e", "/kernelspecs/elastic/..%2f..%2f..%2f..%2fetc/passwd",
        "/kernelspecs/elastic/%2e%2e/%2e%2e/kernel.json", "/api/kernels/..", "/api/kernels/%00", "/api/kernels/..%2f..", "/api/kernels/%ff",
        "/api/kernels/" + "a" * 5000, "//api//kernels/x",
        "/api/sessions/..", "/api/kernels/a-b-c-d-e", "/api/contents", "/files/x", "/tree",
    ],
)  # fmt: skip
@pytest.mark.case("X03")
def test_a_path_with_tricks_shows_nothing(gateway, path):
    status, text = raw(gateway, "GET", path)
    assert 400 <= status < 500
    assert "root:" not in text
    assert "argv" not in text


@pytest.mark.parametrize(
    "body",
    ["{", "[]", "null", "3", '"x"', '{"env":[]}', '{"env":{"KERNEL_A":1}}', '{"path":"../../../etc"}', '{"env":{"KERNEL_GPUS":"two"}}'],
)
@pytest.mark.case("X03")
def test_a_body_that_makes_no_sense_is_refused_with_a_sentence(gateway, body):
    status, text = raw(gateway, "POST", "/api/kernels", body)
    assert status == 400
    assert json.loads(text)["message"]
    assert json.loads(text)["reason"] == "bad_request"


def test_a_kernel_that_dies_at_its_start_says_its_last_words(gateway):
    with gateway.kernel("dies") as kernel:
        cell = kernel.open().run("1")
        assert cell.ename in ("KernelDied", "LaunchError")
        assert "no such licence" in cell.evalue
        until(lambda: kernel.state == "dead")
        assert "no such licence" in kernel.call("GET").json()["reason"]
        late = kernel.open()
        assert "no such licence" in late.run("1").evalue, "also who comes late is told"


@pytest.mark.case("S06")
def test_a_client_may_shorten_the_launch_timeout_and_is_told_which_it_was(gateway):
    with gateway.kernel("endless", KERNEL_LAUNCH_TIMEOUT="1") as kernel:
        until(lambda: kernel.state == "dead")
        reason = kernel.call("GET").json()["reason"]
        assert "1 seconds" in reason
        assert "KERNEL_LAUNCH_TIMEOUT" in reason
    with gateway.kernel() as other:
        assert other.open().run("print(1)").out == "1\n"


def test_a_kernel_that_starts_can_be_deleted(gateway):
    with gateway.kernel("endless") as kernel:
        browser = kernel.open()
        begun = time.monotonic()
        assert kernel.call("DELETE").status_code == 204
        assert browser.until_closed()[0] == 4404
        assert time.monotonic() - begun < 10
        assert kernel.state == "404"


def test_stop_while_the_kernel_starts_ends_the_cell_and_not_the_kernel(gateway):
    with gateway.kernel("slow") as kernel:
        browser = kernel.open()
        cell = browser.begin("print('never')")
        time.sleep(0.3)  # the request is on its way
        assert kernel.call("POST", "/interrupt").status_code == 204
        assert browser.finish(cell).ename == "KeyboardInterrupt"
        assert settled(browser, "print('alive')").out == "alive\n"


@pytest.mark.case("L01")
def test_stop_ends_a_loop_that_prints_and_keeps_its_variables(gateway):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        cell = browser.begin("n = 0\nwhile True:\n    n += 1\n    print(n, 'x' * 50)")
        browser.wait(lambda m: m["type"] == "stream" and m["parent"] == cell)
        begun = time.monotonic()
        assert kernel.call("POST", "/interrupt").status_code == 204
        assert browser.finish(cell).ename == "KeyboardInterrupt"
        assert time.monotonic() - begun < 10
        assert settled(browser, "print(n > 0)").out == "True\n"


TASKS = """
async def block(i):
    print(i, flush=True)
    time.sleep(.5)
await asyncio.gather(*(asyncio.create_task(block(i)) for i in range(8)))
"""


@pytest.mark.case("L03")
@pytest.mark.parametrize("code", ["print('now'); await asyncio.sleep(600)", TASKS], ids=["sleep", "tasks that block"])
def test_stop_ends_an_await(gateway, code):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        browser.run("import asyncio, time")
        cell = browser.begin(code)
        browser.wait(lambda m: m["type"] == "stream" and m["parent"] == cell)
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell).status == "error"
        assert settled(browser, "print('alive')").out == "alive\n"


@pytest.mark.case("L05")
def test_stop_during_a_restart_is_never_an_error_of_the_server(gateway):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        browser.run("1")
        answers = []
        restart = threading.Thread(target=lambda: answers.append(kernel.call("POST", "/restart").status_code))
        restart.start()
        while restart.is_alive():
            answers.append(kernel.call("POST", "/interrupt").status_code)
            time.sleep(0.02)
        assert set(answers) <= {200, 204, 409}
        assert browser.run("print('alive')").out == "alive\n"


def test_two_restarts_at_once_are_one_restart_and_a_sentence(gateway):
    with gateway.kernel() as kernel:
        kernel.open().run("1")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(kernel.call("POST", "/restart"))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        assert any(answer.json().get("reason") == "pending" for answer in answers)


@pytest.mark.case("L06")
def test_cells_sent_during_a_restart_are_all_answered(gateway):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        browser.run("x = 1\nimport atexit, time; atexit.register(time.sleep, 1)")
        restart = threading.Thread(target=lambda: kernel.call("POST", "/restart"))
        restart.start()
        time.sleep(0.1)
        early = [browser.begin(f"print('early {at}')") for at in range(5)]
        restart.join()
        late = [browser.begin(f"print('late {at}')") for at in range(5)]
        assert {browser.finish(cell).status for cell in early} <= {"ok", "aborted", "error"}
        assert [browser.finish(cell).out for cell in late] == [f"late {at}\n" for at in range(5)]
        assert browser.run("x").ename == "NameError"
        until(lambda: kernel.state == "idle")
        assert browser.closed is None, "a restart keeps the socket"


@pytest.mark.parametrize("protocol", [None, ws.V1, ws.ELASTIC])
def test_whoever_connects_is_told_what_the_kernel_is_doing_and_when_it_has_done_it(gateway, protocol):
    """JupyterLab shows "unknown" otherwise: of its own first requests it ignores the states."""
    with gateway.kernel() as kernel:
        first = kernel.open()
        first.run("1")
        alone = kernel.open(protocol=protocol)
        alone.wait(lambda m: m["parent"] is None and m["content"].get("execution_state") == "idle")
        cell = first.begin("import time; time.sleep(0.5)")
        first.wait(lambda m: m["parent"] == cell and m["type"] == "execute_input")
        late = kernel.open(protocol=protocol)
        late.wait(lambda m: m["parent"] is None and m["content"].get("execution_state") == "busy")
        late.wait(lambda m: m["parent"] is None and m["content"].get("execution_state") == "idle")


@pytest.mark.case("L08")
def test_a_kernel_that_is_deleted_as_it_dies_at_its_start_is_gone_for_good(gateway):
    for _ in range(4):
        kernel = gateway.kernel("dies")
        browser = kernel.open()
        assert browser.run("1").status == "error"
        assert kernel.call("DELETE").status_code == 204
        browser.close()
        assert kernel.id not in [each["kernel_id"] for each in gateway.machine.supervisors()], "its supervisor has ended too"


def test_a_kernel_that_dies_says_why_and_comes_back(gateway):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        browser.run("1")
        cell = browser.run("import os; os._exit(3)")
        assert cell.status == "error"
        assert "exit code 3" in cell.evalue
        browser.wait(lambda m: m["content"].get("execution_state") == "restarting")
        assert "exit code 3" in kernel.call("GET").json()["reason"]
        assert browser.run("print('back')").out == "back\n"


@pytest.mark.case("L08")
def test_a_kernel_that_dies_again_and_again_is_given_up_and_can_be_restarted_by_hand(gateway):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        for _ in range(6):
            assert "exit code 7" in browser.run("import os; os._exit(7)").evalue
        browser.wait(lambda m: m["content"].get("execution_state") == "dead")
        assert kernel.state == "dead"
        assert kernel.call("POST", "/restart").status_code == 200
        assert browser.run("print('back')").out == "back\n"
        assert kernel.state in ("idle", "busy")


@pytest.mark.case("P05")
def test_a_session_keeps_the_path_of_its_notebook(gateway):
    path = "año/日本 👩‍🔬.ipynb"
    body = {"path": path, "name": "x", "type": "notebook", "kernel": {"name": "elastic"}}
    made = gateway.call("POST", "/api/sessions", json=body)
    assert made.status_code == 201, made.text
    session = made.json()
    try:
        assert session["path"] == path
        assert gateway.call("POST", "/api/sessions", json=body).json()["id"] == session["id"], "one path, one session"
        renamed = gateway.call("PATCH", f"/api/sessions/{session['id']}", json={"path": "b.ipynb"})
        assert renamed.json()["path"] == "b.ipynb"
        assert gateway.call("PATCH", f"/api/sessions/{session['id']}", json={"path": "../b"}).status_code == 400
    finally:
        assert gateway.call("DELETE", f"/api/sessions/{session['id']}").status_code == 204
    assert gateway.call("GET", f"/api/sessions/{session['id']}").status_code == 404
