"""What people type, and what programs read, of a gateway that runs."""

from __future__ import annotations

import asyncio
import json
import os
import socketserver
import subprocess
import sys
import threading
from datetime import datetime

import pytest

from gateway.backends.places import Places
from gateway.broker.broker import Broker
from gateway.broker.seat import BROKER
from gateway.broker.usage import keep_usage
from gateway.cli import COMMANDS, client
from gateway.cli.replay import recorded
from gateway.protocol.errors import ElasticError
from gateway.settings import Leases, Usage
from tests.cli.conftest import BUSY, IDLE, TOKEN, FakeGateway, announce, serving
from tests.doubles.fake_backend import FakeBackend, gpu


@pytest.mark.parametrize(("command", "key"), [("leases", "leases"), ("queue", "queue")])
def test_json_is_what_the_gateway_says(cli, fake, command, key):
    status, out, _ = cli(command, "--json")
    assert (status, json.loads(out)) == (0, fake.state[key])


def test_status_says_who_holds_what_and_how_many_wait(cli, fake):
    status, out, _ = cli("status")
    assert status == 0
    assert "1 HOLDING, 1 PARKED" in out
    assert f"GPU-1  150 GB  h200  resumes anywhere  {BUSY[:8]}  ann" in out
    assert "GPU-2  150 GB  h200  resumes anywhere  free" in out
    assert "Waiting: 1" in out


def test_leases_name_the_notebook_and_leave_out_columns_in_which_nothing_stands(cli, fake):
    _, out, _ = cli("leases")
    assert "train.ipynb" in out
    assert "ENDS IN" not in out


def test_a_reader_who_has_seen_enough_gets_no_traceback(fake):
    command = [sys.executable, "-m", "gateway.cli", "status", "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_no_word_waits_for_a_whole_server_to_be_imported():
    code = (
        "import sys, gateway.cli.client; print([name for name in sys.modules if name.partition('.')[0] in ('jupyter_server', 'tornado')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_file_that_a_server_left_when_it_was_killed_is_passed_over(cli, runtime):
    gone = {"pid": 2**22 + 1, "url": "http://127.0.0.1:9/", "token": ""}
    (runtime / "jpserver-9.json").write_text(json.dumps(gone))
    (runtime / "jpserver-10.json").write_text('{"pid":')
    assert "No gateway of this user runs" in cli("leases")[2]


def test_leases_marks_the_kernels_whose_cell_runs(cli, fake):
    _, out, _ = cli("leases")
    busy, idle = (next(line for line in out.splitlines() if kernel[:8] in line) for kernel in (BUSY, IDLE))
    assert "HOLDING*" in busy
    assert "PARKED " in idle
    assert "3.0 GB" in idle


def test_a_kernel_is_named_by_how_its_id_begins(cli, fake):
    assert cli("hold", IDLE[:8], "1h30m")[0] == 0
    assert ("POST", f"/api/gpu/kernels/{IDLE}/hold", {"seconds": 5400.0}) in fake.asked


def test_a_hold_of_a_kernel_that_holds_nothing_now_is_said_to_be_for_later(cli, fake):
    assert "keeps its GPU for 30 min: it holds none now" in cli("hold", IDLE, "30m")[1]
    assert cli("hold", BUSY, "30m")[1] == f"Kernel {BUSY} keeps its GPU for 30 min.\n"
    assert "HELD FOR" in cli("leases")[1]


def test_a_beginning_that_two_kernels_share_is_refused(cli, fake):
    status, _, err = cli("release", "0b3c")
    assert status == 1
    assert "2 kernels' ids begin with '0b3c'" in err


def test_a_refusal_is_told_in_the_gateways_own_words(cli, fake):
    assert cli("release", BUSY)[::2] == (1, "jupyter elastic-gateway release: A cell runs; wait for its end.\n")
    status, _, err = cli("release", BUSY, "--json")
    assert (status, json.loads(err)) == (1, {"message": "A cell runs; wait for its end.", "reason": "executing"})


def test_policy_is_shown_and_changed(cli, fake):
    assert "max_hold      none" in cli("policy")[1]
    status, out, _ = cli("policy", "idle_timeout=60", "max_hold=none", "min_hold=1m30s", "--json")
    assert (status, json.loads(out)["idle_timeout"]) == (0, 60)
    assert fake.asked[-1] == ("PATCH", "/api/gpu/policy", {"idle_timeout": 60, "max_hold": None, "min_hold": 90.0})


def test_policy_is_changed_for_one_user_and_taken_back_and_explained_for_a_kernel(cli, fake):
    assert cli("policy", "--user", "ann", "idle_timeout=5", "quiet_hours=22:00-06:00")[0] == 0
    said = {"users": {"ann": {"idle_timeout": 5, "quiet_hours": "22:00-06:00"}}}
    assert fake.asked[-1] == ("PATCH", "/api/gpu/policy", said)
    assert "user ann  idle_timeout" in " ".join(cli("policy")[1].split("\n"))
    assert cli("policy", "--group", "students", "--undo", "--json")[0] == 0
    assert fake.asked[-1][2] == {"groups": {"students": None}}
    status, out, _ = cli("policy", "--kernel", BUSY[:12])
    assert status == 0
    assert "of ann (staff), kernelspec torch, GPUs h200" in out
    assert "idle_timeout  5      user ann  /etc/policy.yaml, line 7  120 (site)" in out


def test_usage_is_shown_and_exported(cli, fake):
    status, out, _ = cli("usage")
    assert (status, out) == (0, "USER  CELLS  HELD   EXECUTED  SAVED  COST\nann   3      2 min  45 s      2.0 h  0.07\n")
    assert cli("usage", "--csv")[1].splitlines() == [
        "user,cells,gpu_seconds_held,gpu_seconds_executed,gpu_seconds_saved,cost", "ann,3,100.0,45.0,7200.0,0.07"
    ]  # fmt: skip
    assert cli("usage", "--by", "kernel", "--since", "2030-01-31")[0] == 0
    assert fake.asked[-1][1] == "/api/gpu/usage?by=kernel&since=2030-01-31T00%3A00%3A00%2B00%3A00"
    assert json.loads(cli("usage", "--json")[1])["rows"][0]["user"] == "ann"


class ManyCells:
    """A lessor that tells three cells at a time, newest first; some begin in the same moment."""

    begins = ["2030-01-01T00:00:09.000Z", "2030-01-01T00:00:08.000Z", *["2030-01-01T00:00:07.000Z"] * 2, "2030-01-01T00:00:01.500Z"]

    def usage(self, by, since, until):
        found = [
            {"kernel": f"k{i}", "user": "ann", "gpus": 1, "begin": begin, "seconds": 0.5}
            for i, begin in enumerate(self.begins)
            if until is None or datetime.fromisoformat(begin).timestamp() < until
        ]
        return {"rows": found[:3], "more": len(found) > 3}


def test_however_many_cells_there_are_each_is_told_once():
    assert [cell["kernel"] for cell in client.cells(ManyCells(), None, None)] == ["k0", "k1", "k2", "k3", "k4"]


def test_what_the_gateway_has_recorded_can_be_replayed():
    found = recorded(client.cells(ManyCells(), None, None))
    assert {session.name: (session.start, session.cells[0].duration, session.gpus) for session in found}["k0"] == (7.5, 0.5, 1)
    with pytest.raises(ElasticError, match="No cell has been recorded"):
        recorded([])


def test_a_user_who_may_not_do_that_is_told_so_and_not_that_the_token_is_wrong(cli, fake):
    status, _, err = cli("drain", "theirs")
    assert (status, "may not" in err, "right token" in err) == (1, True, False)


@pytest.mark.parametrize(
    "argv",
    [
        ("usage", "--since", "yesterday"),
        ("usage", "--since", "800000d"),
        ("usage", "--until", "0001-01-01T00:00:00+23:00"),
        ("usage", "--by", "moon"),
        ("token", ""),
        ("token", "a\nb"),
        ("policy", "--user", "ann"),
        ("policy", "--undo", "min_hold=1"),
        ("policy", "--user", "ann", "--undo", "min_hold=1"),
        ("policy", "--kernel", BUSY, "min_hold=1"),
        ("policy", "idle_timeout"),
        ("policy", "idle_timeout=soon"),
        ("policy", "gpus_per_user=2m"),
        ("hold", IDLE, "ever"),
        ("status", "--x"),
    ],
)
def test_wrong_usage_is_status_2_and_changes_nothing(cli, fake, argv):
    status, _, err = cli(*argv)
    assert status == 2
    assert err
    assert not [asked for asked in fake.asked if asked[0] != "GET"]


def test_shutdown_leaves_the_kernels_unless_told_otherwise(cli, fake):
    assert "its kernels go on" in cli("shutdown")[1]
    assert fake.asked[-1] == ("POST", "/api/shutdown", {"kernels": False})
    assert "2 kernels ended" in cli("shutdown", "--kernels")[1]


def test_a_gateway_elsewhere_is_entered_by_a_token_from_a_file(cli, stranger, runtime, tmp_path):
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    assert cli("queue", "--url", stranger.url, "--token-file", str(token))[0] == 0
    status, _, err = cli("queue", "--url", stranger.url)
    assert status == 1
    assert "--token-file" in err


@pytest.mark.parametrize("name", ["JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE"])
def test_a_gateway_elsewhere_is_entered_by_the_token_of_the_environment(cli, stranger, runtime, tmp_path, monkeypatch, name):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv(name, TOKEN if name == "JUPYTER_TOKEN" else str(tmp_path / "token"))
    assert cli("queue", "--url", stranger.url)[0] == 0
    (tmp_path / "token").unlink()
    if name == "JUPYTER_TOKEN_FILE":
        status, _, err = cli("queue", "--url", stranger.url)
        assert status == 2 and "JUPYTER_TOKEN_FILE" in err


def test_the_token_of_a_gateways_own_file_counts_more_than_the_environments(cli, fake, monkeypatch):
    monkeypatch.setenv("JUPYTER_TOKEN", "another servers")
    assert cli("queue", "--url", fake.url)[0] == 0


def test_kernelspecs_are_listed_with_their_gpus_and_profile(cli, fake):
    _, out, _ = cli("kernelspecs")
    assert "a100     Python (A100) (default)  python    2        big" in out
    assert "python3  Python 3                 python    default  default" in out
    assert json.loads(cli("kernelspecs", "--json")[1])["default"] == "a100"


def test_a_node_is_drained_and_put_back(cli, fake):
    status, out, _ = cli("drain", "local")
    assert status == 0
    assert f"GPUs are still with {BUSY[:8]}" in out
    assert fake.asked[-2] == ("POST", "/api/gpu/nodes/local/drain", {"on": True})
    assert cli("drain", "local", "--off")[1] == "Node local is in service.\n"
    assert fake.asked[-2] == ("POST", "/api/gpu/nodes/local/drain", {"on": False})


def test_a_token_is_never_sent_to_an_address_that_it_does_not_belong_to(cli, fake):
    with serving() as other:
        assert cli("queue", "--url", other.url)[0] == 1
        assert other.entered_with == {None}


def test_without_a_gateway_the_broker_is_asked(cli, runtime):
    socket_path = Places().broker_socket
    asked = []

    class Counter(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(json.loads(self.rfile.readline()))
            self.wfile.write(json.dumps({"ok": True, "snapshot": FakeGateway.state}).encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(socket_path), Counter) as broker:
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        assert json.loads(cli("leases", "--json")[1]) == FakeGateway.state["leases"]
        assert cli("hold", IDLE, "5m")[0] == 0
        assert {"do": "hold", "kernel_id": IDLE, "seconds": 300.0} in asked
        broker.shutdown()


@pytest.fixture
def broker(runtime):
    """A real on-demand broker with two simulated GPUs and nobody to serve."""
    found = Broker(kind=BROKER, backend=FakeBackend(gpu("GPU-0"), gpu("GPU-1"), places=Places()), leases=Leases())
    keep_usage(found, Usage())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(found.start(), loop).result(20)
    yield found
    asyncio.run_coroutine_threadsafe(found.stop(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


def test_a_broker_that_no_gateway_is_part_of_is_shown_ruled_and_ended_by_the_same_words(cli, broker):
    assert "No gateway runs. GPUs are leased by the broker" in cli("status")[1]
    assert cli("leases")[1] == "No kernel runs that leases GPUs.\n"
    assert cli("policy", "idle_timeout=2m")[0] == 0
    assert broker.leases.idle_timeout == 120
    assert cli("usage")[1] == "No kernel has had a GPU in that time.\n"
    assert cli("policy", "idle_timeout=-1")[0] == 1
    assert "Its GPUs are free" in cli("drain", "local")[1]
    assert "Drained: local" in cli("status")[1]
    assert "There are: local" in cli("drain", "mars")[2]
    assert cli("drain", "local", "--off")[1] == "Node local is in service.\n"
    assert cli("shutdown", "--kernels")[1] == ("No gateway runs. The broker for processes without one stops.\n")
    assert broker.asked_to_end.is_set()


def test_a_broker_that_somebody_needs_says_so_and_stays(cli, broker, monkeypatch):
    monkeypatch.setattr(broker, "callers", lambda: ["k1"])
    status, _, err = cli("shutdown")
    assert status == 1
    assert "end them first" in err
    assert not broker.asked_to_end.is_set()


def test_a_changed_configuration_that_does_not_count_yet_is_told(cli, broker):
    broker.outdated = True
    assert "Its configuration has changed" in cli("status")[1]
    assert json.loads(cli("status", "--json")[1])["outdated"] is True


def test_where_there_is_nothing_to_end_that_is_said(cli, runtime):
    assert cli("shutdown", "--kernels")[:2] == (0, "No gateway runs, and none has left a kernel.\n")


def test_without_a_gateway_the_next_step_is_told(cli, runtime):
    status, _, err = cli("leases")
    assert status == 1
    assert "Start one with `jupyter elastic-gateway`" in err


def test_two_gateways_have_to_be_told_apart(cli, fake, runtime):
    announce(fake, runtime, "jpserver-2.json")
    status, _, err = cli("leases")
    assert status == 1
    assert "--url" in err


def test_help_names_every_subcommand(cli):
    out = cli("--help")[1]
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "broker"])
def test_each_subcommand_explains_itself(cli, name):
    status, out, _ = cli(name, "--help")
    assert status == 0
    assert f"usage: jupyter elastic-gateway {name}" in out


def test_an_unknown_word_is_told_what_there_is(cli):
    status, _, err = cli("leasess")
    assert status == 2
    assert "leases" in err
