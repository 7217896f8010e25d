"""While a kernel's state is parked: what is answered, what asks for the GPU by itself, and how it ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from gateway.protocol.model import Phase

from ..doubles.cuda import MISSING, Node, Op
from .cuda_notebook import CPU, GPU, Notebook
from .supervised import PATIENCE

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
ECHO = """
def opened(comm, message):
    comm.on_msg(lambda _: comm.send({"value": m.read(4, 12345).decode()}))
get_ipython().kernel.comm_manager.register_target("echo", opened)
"""
SHOWN = """
class Shown:
    def __repr__(self):
        return m.read(4, 12345).decode()
shown = Shown()
"""


def granted(notebook: Notebook, node: Node) -> None:
    """It asks for the GPU by itself, and gets it."""
    notebook.dialer.until(lambda s: s.lease.wanted)
    notebook.dialer.order("grant", gpus=node.uuids, visible=node.uuids)


def published(notebook: Notebook, msg_type: str) -> dict:
    while True:
        message = notebook.client.get_iopub_msg(timeout=PATIENCE)
        if message["msg_type"] == msg_type:
            return message["content"]


def test_a_widgets_callback_that_touches_cuda_asks_for_the_gpu_by_itself(node: Node, notebook: Notebook) -> None:
    session, shell = notebook.client.session, notebook.client.shell_channel
    notebook.run(CPU + ECHO)
    shell.send(session.msg("comm_open", {"comm_id": "c", "target_name": "echo", "data": {}}))
    assert notebook.park().lease.phase == Phase.PARKED
    shell.send(session.msg("comm_msg", {"comm_id": "c", "data": {}}))
    granted(notebook, node)
    assert published(notebook, "comm_msg")["data"] == {"value": "kept"}
    assert notebook.park().lease.phase == Phase.PARKED


def test_help_on_what_lies_on_the_gpu_asks_for_it_by_itself(node: Node, notebook: Notebook) -> None:
    notebook.run(CPU + SHOWN)
    assert notebook.park().lease.phase == Phase.PARKED
    asked = notebook.client.inspect("shown", 5)
    granted(notebook, node)
    reply = notebook.client.get_shell_msg(timeout=PATIENCE)
    assert reply["parent_header"]["msg_id"] == asked
    assert "kept" in reply["content"]["data"]["text/plain"]


def test_a_debugger_that_shows_what_lies_on_the_gpu_asks_for_it_by_itself(node: Node, notebook: Notebook) -> None:
    client = notebook.client
    notebook.run(CPU + SHOWN)
    assert notebook.park().lease.phase == Phase.PARKED
    request = {"type": "request", "seq": 1, "command": "inspectVariables", "arguments": {}}
    client.control_channel.send(client.session.msg("debug_request", request))
    granted(notebook, node)
    reply = client.get_control_msg(timeout=PATIENCE)
    assert "kept" in {variable["value"] for variable in reply["content"]["body"]["variables"]}


def test_a_cell_in_a_subshell_that_touches_cuda_asks_for_the_gpu_by_itself(node: Node, notebook: Notebook) -> None:
    client = notebook.client
    client.control_channel.send(client.session.msg("create_subshell_request"))
    subshell = client.get_control_msg(timeout=PATIENCE)["content"]["subshell_id"]
    assert notebook.park().lease.phase == Phase.PARKED
    content = {"code": CPU + "print(m.read(4, 12345))", "silent": False, "store_history": False, "user_expressions": {},
               "allow_stdin": False, "stop_on_error": True}  # fmt: skip
    message = client.session.msg("execute_request", content)
    message["header"]["subshell_id"] = subshell
    client.shell_channel.send(message)
    granted(notebook, node)
    assert notebook.collect(message["header"]["msg_id"]) == "b'kept'"


def test_a_kernel_that_is_blocked_on_its_parked_state_still_says_what_it_is(node: Node, notebook: Notebook) -> None:
    assert notebook.park().lease.phase == Phase.PARKED
    blocked = notebook.client.execute(CPU + "print(m.read(4, 12345))")
    notebook.dialer.until(lambda s: s.lease.wanted)
    asked = notebook.client.kernel_info()
    reply = notebook.client.get_shell_msg(timeout=PATIENCE)
    assert (reply["parent_header"]["msg_id"], reply["content"]["language_info"]["name"]) == (asked, "python")
    notebook.dialer.order("grant", gpus=node.uuids, visible=node.uuids)
    assert notebook.collect(blocked) == "b'kept'"


def test_an_interrupt_of_a_cell_that_is_blocked_is_answered_at_once_and_counts_once_the_gpu_is_there(
    node: Node,
    notebook: Notebook,
) -> None:
    client = notebook.client
    assert notebook.park().lease.phase == Phase.PARKED
    blocked = client.execute(CPU + "while True: m.read(4, 12345)")
    notebook.dialer.until(lambda s: s.lease.wanted)
    client.control_channel.send(client.session.msg("interrupt_request"))
    assert client.get_control_msg(timeout=PATIENCE)["content"]["status"] == "ok"
    notebook.dialer.order("grant", gpus=node.uuids, visible=node.uuids)
    assert notebook.collect(blocked).startswith("KeyboardInterrupt")
    assert notebook.run(GPU + "print(m.read(4, 12345))") == "b'kept'"


def test_an_interrupt_while_the_state_is_being_parked_harms_nothing(node: Node, notebook: Notebook) -> None:
    node.set(seconds=0.3)
    client = notebook.client
    notebook.dialer.until(lambda s: not s.lease.executing)
    notebook.dialer.order("park")
    notebook.dialer.until(lambda s: s.lease.phase == Phase.PARKING)
    while not node.calls(Op.LOCK):
        time.sleep(0.005)
    client.control_channel.send(client.session.msg("interrupt_request"))
    assert client.get_control_msg(timeout=PATIENCE)["content"]["status"] == "ok"
    assert notebook.answered().lease.phase == Phase.PARKED
    assert notebook.run(GPU + "print(m.read(4, 12345))", node.uuids[0]) == "b'kept'"


@pytest.mark.parametrize("node", [{"memory": 2 << 30}, {"memory": 2 << 30, "driver": "595.71.05", "cuda": 13020}], indirect=True)
def test_a_kernel_that_lets_go_of_its_gpu_memory_at_exit_restarts_at_once_though_it_is_parked(node: Node, notebook: Notebook) -> None:
    notebook.run(CPU + "import atexit; atexit.register(m.free)")
    assert notebook.park().lease.phase == Phase.PARKED
    began = time.monotonic()
    notebook.client.shutdown(restart=True)
    notebook.dialer.until(lambda s: not s.alive)
    assert time.monotonic() - began < 10
    assert notebook.dialer.call("respawn")["ok"]
    notebook.dialer.until(lambda s: s.ready)
    assert notebook.run(GPU + "import device; device.start(); print(device.count())", node.uuids[0]) == "1"
    assert node.used() == 64 << 20


def test_a_supervisor_that_is_killed_in_the_middle_of_parking_leaves_nothing_on_the_gpu(node: Node, notebook: Notebook) -> None:
    node.set(seconds=0.5)
    notebook.dialer.until(lambda s: not s.lease.executing)
    kernel, helper = notebook.dialer.state.pid, notebook.helper
    notebook.dialer.order("park")
    notebook.dialer.until(lambda s: s.lease.phase == Phase.PARKING)
    time.sleep(0.1)
    notebook.supervised.process.kill()
    end = time.monotonic() + PATIENCE
    while Path(f"/proc/{kernel}").exists() or Path(f"/proc/{helper}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert node.used() == 0


@pytest.mark.parametrize("node", [{"driver": "595.71.05", "cuda": 13020}], indirect=True)
def test_what_a_resumed_kernel_has_left_is_checkpointed_before_it_is_killed(node: Node, notebook: Notebook) -> None:
    code = "import device, time; device.start(); print(1, flush=True); time.sleep(60)"
    start = f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {code!r}], stdout=-1)"
    left = int(notebook.run(GPU + start + "; c.stdout.readline(); print(c.pid)"))
    assert notebook.park().lease.phase == Phase.PARKED
    assert notebook.run(GPU + "print(m.read(4, 12345))", node.uuids[0]) == "b'kept'"
    before = len([call for call in node.calls(Op.CHECKPOINT) if call.pid == left])
    os.kill(notebook.dialer.state.pid, signal.SIGKILL)
    notebook.dialer.until(lambda s: not s.alive)
    assert len([call for call in node.calls(Op.CHECKPOINT) if call.pid == left]) == before + 1
    assert node.state(left) is None
    assert node.used() == 0
