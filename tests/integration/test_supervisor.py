"""A real supervisor beside real kernels: what a plain client and a gateway's link see of it."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from gateway.protocol.model import Phase

from .supervised import BASH, PATIENCE, Dialer, Supervised, collect

GPU = "%%gpu\n"  # says that the cell needs one, whatever the analysis thinks
CPU = "%%cpu\n"


@pytest.fixture(scope="module")
def shared() -> Iterator[Supervised]:
    supervised = Supervised()
    yield supervised
    supervised.end()


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[Supervised]:
    supervised = Supervised(**getattr(request, "param", {}))
    yield supervised
    supervised.end()


@pytest.fixture
def dialer(own: Supervised) -> Dialer:
    return own.dial()


def texts(published: list[dict[str, Any]], name: str = "stdout") -> str:
    return "".join(m["content"]["text"] for m in published if m["msg_type"] == "stream" and m["content"]["name"] == name)


def test_a_gpu_cell_waits_shows_a_line_runs_when_granted_and_sees_its_gpu(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    msg_id = client.execute(GPU + "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    assert dialer.until(lambda s: s.lease.wanted).lease.phase == Phase.WAITING
    dialer.order("queue", position=1, of=2, holders=["ana"], expected=30.0)
    time.sleep(0.2)  # the line appears in its own time
    dialer.grant("GPU-SIM-7")
    reply, published = collect(client, msg_id)
    lines = [m["content"]["data"]["text/plain"] for m in published if m["msg_type"].endswith("display_data")]
    assert reply["status"] == "ok" and texts(published) == "GPU-SIM-7\n"
    assert any("you are next, held by ana" in line for line in lines) and lines[-1].startswith("Waited ")
    kinds = [m["msg_type"] for m in published]
    assert kinds[0] == "status" and kinds.index("clear_output") < kinds.index("execute_input")
    assert dialer.until(lambda s: s.lease.phase == Phase.HOLDING and not s.lease.executing).lease.gpus == ["GPU-SIM-7"]


def test_a_parked_kernel_keeps_its_variables_and_cpu_cells_run_meanwhile(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    msg_id = client.execute(GPU + "x = 41")
    dialer.grant()
    collect(client, msg_id)
    dialer.until(lambda s: s.lease.phase == Phase.HOLDING and not s.lease.executing)
    dialer.order("park")
    assert dialer.until(lambda s: s.lease.phase == Phase.PARKED).lease.home == ["GPU-SIM-0"]
    assert texts(collect(client, client.execute(CPU + "print(x + 1)"))[1]) == "42\n"
    assert dialer.state.lease.phase == Phase.PARKED
    msg_id = client.execute(GPU + "print(x)")
    dialer.grant("GPU-SIM-1")
    assert texts(collect(client, msg_id)[1]) == "41\n"


def park(dialer: Dialer) -> None:
    """Give it a GPU by a first cell, and take it back."""
    dialer.send("attach", session="setup", after=None, window=1 << 20)
    msg_id = dialer.execute("setup", GPU + "import threading, time")
    dialer.grant()
    dialer.outputs("setup", msg_id)
    dialer.until(lambda s: s.lease.phase == Phase.HOLDING and not s.lease.executing)
    dialer.order("park")
    dialer.until(lambda s: s.lease.phase == Phase.PARKED)


@pytest.mark.parametrize("own", [{"stall_seconds": 0.4}], indirect=True)
def test_a_cell_that_hangs_while_its_state_is_parked_asks_for_the_gpu_by_itself(own: Supervised, dialer: Dialer) -> None:
    park(dialer)
    msg_id = dialer.execute("setup", CPU + "threading.Event().wait(3)")
    assert dialer.until(lambda s: s.lease.wanted).held == 0
    dialer.grant()
    assert dialer.until(lambda s: s.lease.phase == Phase.HOLDING).lease.executing
    dialer.outputs("setup", msg_id)
    assert not dialer.until(lambda s: not s.lease.executing).lease.wanted


@pytest.mark.parametrize("own", [{"stall_seconds": 0.2}], indirect=True)
def test_a_cell_that_only_sleeps_while_its_state_is_parked_asks_for_nothing(own: Supervised, dialer: Dialer) -> None:
    park(dialer)
    heard = len(dialer.heard)
    dialer.outputs("setup", dialer.execute("setup", CPU + "time.sleep(1.2)"))
    assert not any(header["state"]["lease"]["wanted"] for header, _ in dialer.heard[heard:] if header["t"] == "state")


def test_a_kernel_that_executes_refuses_to_be_parked(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    msg_id = client.execute(GPU + "import time; time.sleep(0.8)")
    dialer.grant()
    dialer.until(lambda s: s.lease.executing)
    dialer.order("park")
    state = dialer.until(lambda s: s.lease.order[1] == 2)
    assert state.lease.answer == "executing" and state.lease.phase == Phase.HOLDING
    assert collect(client, msg_id)[0]["status"] == "ok"


def test_run_all_keeps_its_order_and_stops_on_the_first_error(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    ids = [client.execute(code) for code in (GPU + "print('a')", "print('b')", "1/0", "print('never')")]
    dialer.grant()
    replies = {}
    while not replies.keys() >= set(ids):
        message = client.get_shell_msg(timeout=PATIENCE)
        replies[message["parent_header"]["msg_id"]] = message["content"]["status"]
    assert [replies[i] for i in ids] == ["ok", "ok", "error", "aborted"]


def test_an_interrupt_ends_a_wait_with_a_keyboard_interrupt_and_aborts_what_follows(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    first, second = client.execute(GPU + "1"), client.execute("2")
    dialer.until(lambda s: s.held == 2)
    assert dialer.call("signal", signum=2)["ok"]
    replies = {}
    while not replies.keys() >= {first, second}:
        message = client.get_shell_msg(timeout=PATIENCE)
        replies[message["parent_header"]["msg_id"]] = message["content"]
    assert replies[first]["ename"] == "KeyboardInterrupt" and replies[second]["status"] == "aborted"
    assert not dialer.until(lambda s: not s.held).lease.wanted
    assert texts(collect(client, client.execute(CPU + "print('fine')"))[1]) == "fine\n"


def test_an_interrupt_request_on_control_ends_a_wait_too(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    msg_id = client.execute(GPU + "1")
    dialer.until(lambda s: s.held)
    client.control_channel.send(client.session.msg("interrupt_request"))
    assert collect(client, msg_id)[0]["ename"] == "KeyboardInterrupt"
    assert client.get_control_msg(timeout=PATIENCE)["content"]["status"] == "ok"


@pytest.mark.parametrize("own", [{"gpus": 0}], indirect=True)
@pytest.mark.parametrize("code", ["import time; time.sleep(30)", "import asyncio; await asyncio.sleep(30)"])
def test_an_interrupt_ends_a_running_cell_at_once_also_one_that_awaits(own: Supervised, dialer: Dialer, code: str) -> None:
    client = own.client()
    msg_id = client.execute("print('on')\n" + code)
    while not (message := client.get_iopub_msg(timeout=PATIENCE))["content"].get("text"):
        pass
    assert message["content"]["text"] == "on\n"
    time.sleep(0.2)
    dialer.call("signal", signum=2)
    assert collect_reply(client, msg_id, 5.0)["status"] == "error"


def collect_reply(client: Any, msg_id: str, patience: float) -> dict[str, Any]:
    while True:
        message = client.get_shell_msg(timeout=patience)
        if message["parent_header"]["msg_id"] == msg_id:
            return dict(message["content"])


def test_a_refused_lease_is_an_error_in_the_cell(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    msg_id = client.execute(GPU + "1")
    dialer.until(lambda s: s.lease.wanted)
    dialer.order("deny", reason="queue_timeout", message="No GPU came free within 5 s.")
    reply, published = collect(client, msg_id)
    assert reply["ename"] == "LeaseError" and "within 5 s" in reply["evalue"]
    assert [m["msg_type"] for m in published].count("error") == 1


def test_a_kernel_that_dies_says_why_closes_its_cells_and_starts_again_in_place(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    dying, queued = (
        client.execute(CPU + "import os, sys; print('last words', file=sys.__stderr__, flush=True); os._exit(3)"),
        client.execute(CPU + "1"),
    )
    assert "exit code 3" in collect_reply(client, dying, PATIENCE)["evalue"]
    assert collect_reply(client, queued, PATIENCE)["status"] == "aborted"
    state = dialer.until(lambda s: not s.alive)
    assert state.exit_code == 3 and "last words" in state.reason and state.execution_state == "dead"
    assert dialer.call("respawn")["ok"]
    assert dialer.until(lambda s: s.ready).starts == 2
    assert texts(collect(client, client.execute(CPU + "print('again')"))[1]) == "again\n", "the ports are the old ones"


def test_cells_sent_during_a_restart_run_in_the_new_kernel(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    collect(client, client.execute(CPU + "import atexit, time; atexit.register(time.sleep, 1)"))
    client.control_channel.send(client.session.msg("shutdown_request", {"restart": True}))
    dialer.until(lambda s: s.execution_state == "restarting")
    msg_id = client.execute(CPU + "print('early')")
    dialer.until(lambda s: not s.alive)
    dialer.call("respawn")
    assert texts(collect(client, msg_id)[1]) == "early\n"


def test_input_is_asked_of_the_client_whose_cell_it_is(shared: Supervised) -> None:
    client, other = shared.client(), shared.client()
    msg_id = client.execute(CPU + "print(input('who? '))", allow_stdin=True)
    assert client.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"] == "who? "
    client.input("ana")
    assert texts(collect(client, msg_id)[1]) == "ana\n"
    assert not other.stdin_channel.socket.poll(0)


def test_comm_buffers_pass_both_ways_untouched(shared: Supervised) -> None:
    dialer = shared.dial()
    dialer.send("attach", session="comm", after=None, window=1 << 30)
    dialer.wait("attached")
    code = CPU + (
        "def opened(comm, message):\n"
        "    comm.on_msg(lambda m: comm.send({}, buffers=m['buffers']))\n"
        "get_ipython().kernel.comm_manager.register_target('echo', opened)"
    )
    dialer.outputs("comm", dialer.execute("comm", code))
    buffers = [os.urandom(5_000_000), bytes(10), b""]
    for at, (msg_type, content) in enumerate(
        [("comm_open", {"comm_id": "c", "target_name": "echo", "data": {}}), ("comm_msg", {"comm_id": "c", "data": {}})]
    ):
        header = {
            "msg_id": f"comm-{at}",
            "msg_type": msg_type,
            "session": "comm",
            "username": "",
            "version": "5.3",
            "date": "2026-01-01T00:00:00Z",
        }
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
        dialer.send("in", [*parts, *(buffers if at else [])], session="comm", channel="shell", m=None)
    while True:
        header, parts = dialer.receive()
        if header["t"] == "out" and json.loads(parts[0])["msg_type"] == "comm_msg":
            assert parts[4:] == buffers
            break


def test_completion_answers_while_a_cell_waits_and_in_a_subshell_while_one_runs(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    collect(client, client.execute(CPU + "alphabet = 1"))
    waiting = client.execute(GPU + "import time; time.sleep(600)")
    dialer.until(lambda s: s.held)
    assert "alphabet" in collect_reply(client, client.complete("alpha", 5), PATIENCE)["matches"]  # the first one parses a lot
    client.control_channel.send(client.session.msg("create_subshell_request"))
    subshell = client.get_control_msg(timeout=PATIENCE)["content"]["subshell_id"]
    dialer.grant()
    dialer.until(lambda s: s.lease.executing)
    for subshell_id, want in ((subshell, "ok"), ("made-up", "error")):
        message = client.session.msg("complete_request", {"code": "alpha", "cursor_pos": 5})
        message["header"]["subshell_id"] = subshell_id
        client.shell_channel.send(message)
        assert collect_reply(client, message["header"]["msg_id"], PATIENCE)["status"] == want
    assert dialer.state.lease.executing, "all that while the cell was running"
    dialer.call("signal", signum=2)
    assert collect_reply(client, waiting, PATIENCE)["ename"] == "KeyboardInterrupt"


def test_the_debugger_answers_while_a_cell_waits(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    client.execute(GPU + "1")
    dialer.until(lambda s: s.held)
    client.control_channel.send(client.session.msg("debug_request", {"type": "request", "seq": 1, "command": "debugInfo", "arguments": {}}))
    assert client.get_control_msg(timeout=PATIENCE)["content"]["success"]


def test_the_same_message_number_runs_once(shared: Supervised) -> None:
    dialer = shared.dial()
    dialer.send("attach", session="twice", after=None, window=1 << 20)
    dialer.wait("attached")
    dialer.outputs("twice", dialer.execute("twice", CPU + "count = 1", m=1))
    dialer.execute("twice", CPU + "count += 1", m=1)
    msg_id = dialer.execute("twice", CPU + "print(count)", m=2)
    assert [c["text"] for _, kind, c in dialer.outputs("twice", msg_id) if kind == "stream"] == ["1\n"]
    assert max(header["m"] for header, _ in dialer.heard if header["t"] == "taken") == 2


def test_output_of_a_cell_survives_its_gateway_whole_and_once(shared: Supervised) -> None:
    first = shared.dial()
    first.send("attach", session="lab", after=None, window=1 << 20)
    first.wait("attached")
    msg_id = first.execute("lab", CPU + "import time\nfor i in range(20):\n    print(i, flush=True); time.sleep(0.02)")
    seen: dict[int, str] = {}
    while len(seen) < 8:
        header, parts = first.receive()
        if header["t"] == "out":
            seen[header["n"]] = parts[3].decode()
    first.close()  # no goodbye, nothing acknowledged
    second = shared.dial(generation=2)
    second.send("attach", session="lab", after=max(seen), window=1 << 20)
    second.wait("attached")
    rest = second.outputs("lab", msg_id)
    numbers = [*seen, *(number for number, _, _ in rest)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no number twice, none missing"
    text = "".join(json.loads(c)["text"] for c in seen.values() if "text" in c) + "".join(
        c["text"] for _, kind, c in rest if kind == "stream"
    )
    assert text.split() == [str(i) for i in range(20)]


def test_an_order_of_an_older_gateway_is_refused(shared: Supervised) -> None:
    newer, older = shared.dial(generation=9), shared.dial(generation=8)
    newer.order("queue", position=1, of=1, holders=[], expected=None)
    newer.send("ping")
    newer.wait("pong")
    older.order("park")
    assert older.wait("refused")["reason"] == "stale_order"


@pytest.mark.case("X08")
def test_unsigned_and_torn_messages_are_dropped_and_harm_nobody(shared: Supervised) -> None:
    client = shared.client()
    rude = zmq.Context.instance().socket(zmq.DEALER)
    rude.linger = 0
    rude.connect(f"tcp://127.0.0.1:{shared.identity['connection']['shell_port']}")
    header = json.dumps({"msg_id": "x", "msg_type": "execute_request", "session": "s"}).encode()
    content = json.dumps({"code": "open('/tmp/forged', 'w')"}).encode()
    for frames in ([b""], [b"x"] * 5, [b"<IDS|MSG>"], [b"<IDS|MSG>", b"bad", header, b"{}", b"{}", content], [os.urandom(100)] * 8):
        rude.send_multipart(frames)
    assert texts(collect(client, client.execute(CPU + "print('fine')"))[1]) == "fine\n"
    rude.close()
    assert not Path("/tmp/forged").exists()


def test_link_messages_that_make_no_sense_are_refused_with_a_reason(shared: Supervised) -> None:
    dialer = shared.dial()
    for type_, fields in (("nonsense", {}), ("order", {}), ("attach", {}), ("in", {"session": "s", "channel": "shell"})):
        dialer.send(type_, **fields)
        assert dialer.wait("refused")["message"]
    assert not dialer.call("nonsense")["ok"]
    assert shared.dial().state.alive


def test_a_version_that_neither_side_knows_is_refused_by_name(shared: Supervised) -> None:
    dialer = shared.dial()
    dialer.send("hello", versions=[90, 99], generation=1, roles=[])
    assert dialer.wait("refused")["reason"] == "no_common_version"


def test_connect_info_leads_through_the_gate(shared: Supervised) -> None:
    client = shared.client()
    code = CPU + "import ipykernel; print(open(ipykernel.get_connection_file()).read())"
    info = json.loads(texts(collect(client, client.execute(code))[1]))
    assert info["shell_port"] == shared.identity["connection"]["shell_port"]


def test_the_gpu_magic_socket_answers_and_refuses_nonsense(own: Supervised, dialer: Dialer) -> None:
    with socket.socket(socket.AF_UNIX) as magic:
        magic.settimeout(PATIENCE)
        magic.connect(str(own.folder / "magic.sock"))
        lines = magic.makefile("rw")

        def ask(line: str) -> dict[str, Any]:
            lines.write(line + "\n")
            lines.flush()
            return dict(json.loads(lines.readline()))

        assert ask('{"do": "status"}')["state"]["lease"]["phase"] == "COLD"
        assert ask('{"do": "hold", "seconds": 60}')["ok"]
        assert 50 < dialer.until(lambda s: s.lease.hold_for > 0).lease.hold_for <= 60
        assert ask('{"do": "release"}')["reason"] == "not_holding"
        for nonsense in (
            "",
            "[]",
            "{",
            '{"do": 7}',
            '{"do": "hold", "seconds": "x"}',
            '{"do": "hold", "seconds": -1}',
            '{"do": "hold", "seconds": NaN}',
        ):
            assert not ask(nonsense)["ok"], nonsense


def test_every_file_of_a_supervisor_is_its_users_alone(shared: Supervised) -> None:
    assert not (shared.folder / "spec.json").exists(), "it held the request's environment"
    ours = [path for path in shared.folder.iterdir() if path.name != "supervisor.log"]  # that is made by whoever started it
    kernels = [path for path in ours if path.name.startswith("z")]  # its sockets, as open as its user's files: the folder keeps them
    for path in {shared.folder, *ours}.difference(kernels):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_supervisor_and_its_kernel_end_with_the_process_that_owns_them() -> None:
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    supervised = Supervised(owner=owner.pid)
    pid = supervised.dial().until(lambda s: s.alive).pid
    owner.kill()
    owner.wait()
    supervised.process.wait(PATIENCE)
    assert not Path(f"/proc/{pid}").exists() and not supervised.folder.exists()


def test_a_kernel_ends_with_its_supervisor_even_when_that_is_killed() -> None:
    supervised = Supervised(BASH, language="bash")
    pid = supervised.dial().until(lambda s: s.alive).pid
    supervised.process.kill()
    supervised.process.wait()
    end = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_is_not_there_is_told_to_whoever_asked() -> None:
    supervised = Supervised(["/no/such/program"])
    assert supervised.said.startswith("failed: ") and "/no/such/program" in supervised.said
    assert supervised.process.wait(PATIENCE) == 1


def test_a_kernel_that_is_not_python_waits_for_its_gpu_and_runs() -> None:
    supervised = Supervised(BASH, language="bash")
    try:
        dialer, client = supervised.dial(), supervised.client()
        msg_id = client.execute("echo hello")
        dialer.grant()
        reply, published = collect(client, msg_id)
        assert reply["status"] == "ok" and "hello" in texts(published)
        msg_id = client.execute("sleep 30")
        dialer.until(lambda s: s.lease.executing)
        time.sleep(0.3)
        dialer.call("signal", signum=2)
        assert collect_reply(client, msg_id, 10.0)["status"] in ("abort", "aborted", "error", "ok")
    finally:
        supervised.end()


def test_a_kernel_that_speaks_only_tcp_works_too() -> None:
    supervised = Supervised(kernel_transport="tcp", gpus=0)
    try:
        client = supervised.client()
        assert texts(collect(client, client.execute("print('tcp')"))[1]) == "tcp\n"
    finally:
        supervised.end()


def test_the_plain_ports_can_be_encrypted() -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    supervised = Supervised(gpus=0, curve_publickey=public, curve_secretkey=secret)
    try:
        from jupyter_client import BlockingKernelClient

        client = BlockingKernelClient()
        client.load_connection_info(
            {**supervised.identity["connection"], "key": supervised.key.encode(), "curve_publickey": public, "curve_secretkey": secret}
        )
        client.start_channels()
        client.wait_for_ready(PATIENCE)
        assert texts(collect(client, client.execute("print('secret')"))[1]) == "secret\n"
        client.stop_channels()
    finally:
        supervised.end()


def test_a_large_output_after_a_long_silence_is_there_before_its_reply(shared: Supervised) -> None:
    dialer = shared.dial()
    dialer.send("attach", session="large", after=None, window=1 << 20)
    dialer.wait("attached")
    msg_id = dialer.execute("large", CPU + "import time; time.sleep(2.2); print('x' * 60_000_000)")
    outputs = dialer.outputs("large", msg_id)
    kinds = [kind for _, kind, _ in outputs]
    assert sum(len(content["text"]) for _, kind, content in outputs if kind == "stream" and content["name"] == "stdout") == 60_000_001
    assert kinds.index("execute_reply") > max(at for at, kind in enumerate(kinds) if kind == "stream")


def test_a_name_that_held_gpu_data_is_free_again_once_it_was_bound_anew(own: Supervised, dialer: Dialer) -> None:
    client = own.client()
    msg_id = client.execute("import ctypes\nx = ctypes.CDLL(None)")
    dialer.grant()
    collect(client, msg_id)
    dialer.until(lambda s: s.lease.phase == Phase.HOLDING and not s.lease.executing)
    collect(client, client.execute(GPU + "del x\nx = 3"))
    dialer.until(lambda s: s.starts and not s.lease.executing and not s.in_flight)
    dialer.order("park")
    dialer.until(lambda s: s.lease.phase == Phase.PARKED)
    assert texts(collect(client, client.execute("print(x + 1)"))[1]) == "4\n"
    assert dialer.state.lease.phase == Phase.PARKED
