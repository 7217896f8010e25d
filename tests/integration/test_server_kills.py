"""A gateway that is killed, and supervisors that are killed or silent: what the next gateway makes of it."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from gateway.protocol import websocket as ws
from tests.integration.machine import until
from tests.integration.serving import GPU, Gateway, Kernel, end


def test_a_gateway_that_finds_a_silent_kernel_leaves_it_its_gpu_and_takes_it_over_once_it_answers(own_machine):
    gateway = Gateway(own_machine)
    notebook = {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "elastic"}}
    session = gateway.call("POST", "/api/sessions", json=notebook).json()
    kernel = Kernel(gateway, session["kernel"]["id"])
    kernel.open().run(GPU + "v = 1")
    [supervisor] = own_machine.supervisors()
    gateway.stop(signal.SIGKILL)
    os.kill(supervisor["pid"], signal.SIGSTOP)
    try:
        gateway.start()
        assert kernel.state == "unknown"
        assert [each["id"] for each in gateway.call("GET", "/api/sessions").json()] == [session["id"]], "the notebook stays"
        assert kernel.call("POST", "/restart").json()["reason"] == "supervisor_lost"
        early = kernel.open()
        said = early.begin("print(v + 1)")
        other = gateway.kernel().open()
        waits = other.begin(GPU + "print('mine')")
        whose = f"process {supervisor['pid']}"
        other.wait(lambda m: m["parent"] == waits and whose in json.dumps(m["content"]))
    finally:
        os.kill(supervisor["pid"], signal.SIGCONT)
    try:
        until(lambda: kernel.state == "idle")
        assert early.finish(said).out == "2\n"
        assert gateway.call("POST", "/api/sessions", json=notebook).json()["id"] == session["id"]
        assert kernel.open().run("print(v)").out == "1\n"
        assert other.finish(waits).out == "mine\n"
        assert kernel.call("DELETE").status_code == 204
        until(lambda: kernel.id not in [each["kernel_id"] for each in own_machine.supervisors()])
    finally:
        end(gateway)


@pytest.mark.parametrize("by", ["its process", "delete"])
def test_a_kernel_that_ends_before_it_ever_answered_is_gone_for_its_notebook_too(own_machine, by):
    gateway = Gateway(own_machine)
    session = gateway.call("POST", "/api/sessions", json={"path": "a", "type": "notebook", "kernel": {"name": "elastic"}}).json()
    kernel = Kernel(gateway, session["kernel"]["id"])
    kernel.open().run("1")
    [supervisor] = own_machine.supervisors()
    gateway.stop(signal.SIGKILL)
    os.kill(supervisor["pid"], signal.SIGSTOP)
    try:
        gateway.start()
        browser = kernel.open()
        if by == "delete":
            assert kernel.call("DELETE").status_code == 204
        else:
            os.kill(supervisor["pid"], signal.SIGKILL)
        assert browser.until_closed()[0] == ws.CLOSE_KERNEL_GONE
        assert kernel.state == "404" and gateway.call("GET", "/api/sessions").json() == []
        until(lambda: not own_machine.supervisors())
    finally:
        end(gateway)


SLOW_END = """
import atexit, os, time
def slow():
    open({flag!r}, 'w').close()
    while os.path.exists({flag!r}):
        time.sleep(.05)
atexit.register(slow)
v = 1
"""


@pytest.mark.parametrize("begun", ["DELETE", "POST"])
@pytest.mark.parametrize("ended", ["", "before the next gateway"])
def test_what_a_killed_gateway_had_begun_the_next_one_finishes(own_machine, begun, ended):
    gateway = Gateway(own_machine)
    kernel, flag = gateway.kernel(), own_machine.root / "flag"
    kernel.open().run(SLOW_END.format(flag=str(flag)))

    def ask() -> None:
        with suppress(requests.ConnectionError):
            kernel.call(begun, "/restart" if begun == "POST" else "")

    threading.Thread(target=ask, daemon=True).start()
    until(flag.exists)
    gateway.stop(signal.SIGKILL)
    if ended:
        [supervisor] = own_machine.supervisors()
        flag.unlink()
        until(lambda: not Path(f"/proc/{supervisor['pid']}/task/{supervisor['pid']}/children").read_text())
    gateway.start()
    try:
        flag.unlink(missing_ok=True)
        if begun == "DELETE":
            until(lambda: kernel.state == "404" and not own_machine.supervisors())
        else:
            until(lambda: kernel.state == "idle")
            assert kernel.open().run("print('v' in globals())").out == "False\n"
    finally:
        end(gateway)


def test_a_kernel_whose_end_had_only_been_noted_is_ended_by_the_next_gateway(own_machine):
    gateway = Gateway(own_machine)
    kernel, other = gateway.kernel(), gateway.kernel()
    kernel.open().run("1")
    other.open().run("v = 1")
    gateway.stop(signal.SIGKILL)
    (own_machine.places.kernel(kernel.id) / "ending").touch()
    gateway.start()
    try:
        until(lambda: kernel.state == "404")
        until(lambda: [each["kernel_id"] for each in own_machine.supervisors()] == [other.id])
        assert other.open().run("print(v)").out == "1\n"
    finally:
        end(gateway)


def test_a_restart_that_a_silent_kernel_does_not_hear_leaves_it_and_its_cell_as_they_are(own_machine):
    gateway = Gateway(own_machine)
    kernel = gateway.kernel()
    browser = kernel.open()
    browser.run("v = 1")
    go = own_machine.root / "go"
    cell = browser.begin(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint(v)")
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "execute_input")
    [supervisor] = own_machine.supervisors()
    os.kill(supervisor["pid"], signal.SIGSTOP)
    try:
        assert kernel.call("POST", "/restart").json()["reason"] == "supervisor_lost"
        assert kernel.state == "busy"
    finally:
        os.kill(supervisor["pid"], signal.SIGCONT)
    try:
        go.touch()
        assert browser.finish(cell).out == "1\n"
        assert browser.run("print(v + 1)").out == "2\n"
        until(lambda: kernel.call("POST", "/restart").status_code == 200)
    finally:
        end(gateway)


def test_a_kernel_that_is_silent_is_interrupted_in_vain_at_once_and_well_when_it_answers_again(own_machine):
    gateway = Gateway(own_machine)
    kernel = gateway.kernel()
    browser = kernel.open()
    cell = browser.begin("import time; time.sleep(600)")
    browser.wait(lambda m: m["parent"] == cell and m["type"] == "execute_input")
    [supervisor] = own_machine.supervisors()
    os.kill(supervisor["pid"], signal.SIGSTOP)
    try:
        assert "has not answered within" in kernel.call("POST", "/interrupt").json()["message"]
        refused = kernel.call("POST", "/interrupt").json()
        assert refused["reason"] == "supervisor_lost" and "is it stopped" in refused["message"] and "Try again" in refused["message"]
    finally:
        os.kill(supervisor["pid"], signal.SIGCONT)
    try:
        assert browser.finish(cell).ename == "KeyboardInterrupt", "the first one was on its way"
        until(lambda: kernel.call("POST", "/interrupt").status_code == 204)
    finally:
        end(gateway)


LEAVES = """
import subprocess, sys
code = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(60)"
left = subprocess.Popen([sys.executable, '-c', code, {file!r}], stdout=subprocess.PIPE, start_new_session=True)
left.stdout.readline()
print('left', flush=True)
import time; time.sleep({seconds})
"""
TRIES = "import fcntl; f = open({file!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('alone')"


@pytest.mark.parametrize("end_of", ["supervisor", "kernel", "restart", "delete"])
def test_what_a_kernel_leaves_running_is_off_its_gpu_before_another_gets_it(gateway, gateway_machine, end_of):
    file = str(gateway_machine.root / f"witness-{end_of}")
    one, two = gateway.kernel(), gateway.kernel()
    try:
        browser, other = one.open(), two.open()
        other.run("1")
        cell = browser.begin(GPU + LEAVES.format(file=file, seconds=0 if end_of == "delete" else 60))
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
        waits = other.begin(GPU + TRIES.format(file=file)) if end_of != "delete" else ""
        [pids] = [(each["pid"], one.id) for each in gateway_machine.supervisors() if each["kernel_id"] == one.id]
        if end_of == "supervisor":
            os.kill(pids[0], signal.SIGKILL)
        elif end_of == "kernel":
            kernel_pid = next(int(each) for each in Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text().split())
            os.kill(kernel_pid, signal.SIGKILL)
        elif end_of == "restart":
            one.call("POST", "/restart")
        else:
            browser.finish(cell)
            one.call("DELETE")
            waits = other.begin(GPU + TRIES.format(file=file))
        done = other.finish(waits)
        assert done.out == "alone\n", done
    finally:
        for kernel in (one, two):
            kernel.call("DELETE")


def test_what_a_kernel_left_whose_supervisor_and_gateway_were_killed_is_ended_by_whoever_gets_its_gpu(own_machine):
    own_machine.configure(
        ElasticGateway={"simulated_gpus": 1}, Leases={"min_hold": 0.0}, LocalBackend={"lock_dir": str(own_machine.root / "locks")}
    )
    first = Gateway(own_machine)
    file = str(own_machine.root / "witness")
    assert first.kernel().open().run(GPU + LEAVES.format(file=file, seconds=0)).out == "left\n"
    [supervisor] = own_machine.supervisors()
    first.stop(signal.SIGKILL)
    os.kill(supervisor["pid"], signal.SIGKILL)
    second = Gateway(own_machine, f"LocalBackend.runtime_dir={own_machine.root / 'r2'}")
    try:
        assert second.kernel().open().run(GPU + TRIES.format(file=file)).out == "alone\n"
    finally:
        end(second)
        first.start()  # and clears away what is left of its own
        end(first)


def test_a_kernel_that_was_found_again_and_then_lost_its_supervisor_can_be_restarted_for_the_same_user(own_machine):
    gateway = Gateway(own_machine)
    kernel = gateway.kernel(KERNEL_USERNAME="ada", KERNEL_GPUS="0", KERNEL_COLOUR="red")
    kernel.open().run("v = 1")
    gateway.stop(signal.SIGKILL)
    gateway.start()
    try:
        browser = kernel.open()
        assert browser.run("print(v)").out == "1\n"
        [supervisor] = own_machine.supervisors()
        os.kill(supervisor["pid"], signal.SIGKILL)
        until(lambda: kernel.state == "dead")
        assert kernel.call("POST", "/restart").status_code == 200
        asked = "import os; print(os.environ['KERNEL_USERNAME'], os.environ['KERNEL_COLOUR'])"
        assert browser.run(GPU + asked).out == "ada red\n", "what its request brought is kept too"
        [supervisor] = own_machine.supervisors()
        assert (supervisor["user"], supervisor["gpus"], supervisor["kernel_id"]) == ("ada", 0, kernel.id)
    finally:
        end(gateway)
