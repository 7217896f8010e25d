"""``replay`` as it is typed, and what it prints."""

import json

from gateway.cli import main

KEYS = {"name", "gpu_seconds_held", "gpu_seconds_executed", "at_once", "wait_p50", "wait_p95", "wait_p99", "cpu_delay_p99"}
TWO_DAYS = ["replay", "--gpus", "64", "--node-size", "8", "--synthetic-days", "2"]


def test_policies_come_in_the_order_in_which_they_were_named(capsys):
    names = ["reservation", "cull:3600", "elastic:120", "oracle"]
    assert main([*TWO_DAYS, *(word for name in names for word in ("--policy", name)), "--json"]) == 0
    policies = json.loads(capsys.readouterr().out)["policies"]
    assert [policy["name"] for policy in policies] == names
    assert all(set(policy) >= KEYS for policy in policies)
    assert len({policy["gpu_seconds_executed"] for policy in policies}) == 1


def test_people_get_a_table_and_a_plot(capsys, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("session,start,duration,gpus,memory\na,0,60,1,0\na,600,60,1,0\n")
    assert main(["replay", "--gpus", "1", "--trace", str(trace), "--policy", "reservation", "--policy", "elastic:60"]) == 0
    out = capsys.readouterr().out
    assert "HELD/EXECUTED" in out and "5.50" in out and "1.51" in out
    assert "#####----" in out and "....." in out


def test_a_bad_trace_ends_with_its_line(capsys, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("session,start,duration,gpus,memory\na,0,x,1,0\n")
    assert main(["replay", "--gpus", "1", "--trace", str(trace), "--json"]) == 1
    said = json.loads(capsys.readouterr().err)
    assert said["reason"] == "bad_trace" and "line 2" in said["message"]


def test_a_policy_that_is_none_is_wrong_usage(capsys):
    assert main([*TWO_DAYS, "--policy", "magic"]) == 2
    assert "'magic' is no policy" in capsys.readouterr().err
