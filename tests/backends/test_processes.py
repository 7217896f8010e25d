"""Processes as identities, and families of them."""

from __future__ import annotations

import os
import subprocess
import sys

from gateway.backends import processes


def test_a_process_is_known_by_its_start_and_gone_when_it_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = processes.started(child.pid)
    assert start is not None
    assert processes.started(os.getpid()) != start
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.started(child.pid) is None, "a zombie has ended"
    child.wait()
    assert processes.started(child.pid) is None


def test_a_signal_never_reaches_another_process_that_took_the_number() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = processes.started(child.pid)
    assert start is not None
    assert processes.send({(child.pid, start + 1)}, 9) == set()
    assert child.poll() is None
    processes.kill_all({(child.pid, start)})
    assert child.wait() == -9


def test_a_family_is_killed_with_all_its_children() -> None:
    code = "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1); print(c.pid, flush=True); c.wait()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    family = processes.descendants(parent.pid)
    assert {pid for pid, _ in family} == {parent.pid, child}
    processes.kill_all(family)
    parent.wait()
    while processes.started(child) is not None:
        pass


def test_a_process_is_found_by_what_stands_in_its_environment() -> None:
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1, env={**os.environ, "MARK_OF": "me"})
    assert child.stdout is not None
    child.stdout.readline()
    assert {pid for pid, _ in processes.marked("MARK_OF", "me")} == {child.pid}
    assert processes.marked("MARK_OF", "m") == set()
    child.kill()
    child.wait()
