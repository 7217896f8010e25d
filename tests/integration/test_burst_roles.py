"""Roles beside the workers: simulators that play, a worker that learns, in one cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.machine import until

NOTEBOOK = """
import random, secrets
from multiprocessing.connection import Client, Listener
key = secrets.token_bytes()
LENGTH = 6

def host_port(address):
    host, _, port = address.rpartition(":")
    return host, int(port)

def play(values, chance, explore):
    "One walk along a corridor whose far end pays; each step as (place, move, reward, next place)."
    place, steps = 0, []
    while place < LENGTH and len(steps) < 200:
        move = chance.randrange(2) if chance.random() < explore else max((0, 1), key=lambda m: (values[place][m], chance.random()))
        then = max(0, place + (1 if move else -1))
        steps.append((place, move, float(then == LENGTH), then))
        place = then
    return steps

values = [[0.0, 0.0] for _ in range(LENGTH + 1)]
"""
LEARNING = """%%distributed -w {workers} -e none {roles}
if ROLE == "simulator":
    print("simulator", RANK, "of", WORLD_SIZE)
    chance = random.Random(RANK)
    with Listener(host_port(ADDRESSES[ROLE][RANK]), authkey=key) as door:
        while True:
            with door.accept() as learner:
                while (asked := learner.recv()) is not None:
                    learner.send((RANK, play(*asked[:1], chance, asked[1])))
else:
    import time
    lines = []
    for address in ADDRESSES.get("simulator", []):
        while True:
            try:
                lines.append(Client(host_port(address), authkey=key))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
    played = set()
    for episode in range(60):
        for line in lines:
            line.send((values, 0.3))
        for line in lines:
            who, steps = line.recv()
            played.add(who)
            for place, move, reward, then in steps:
                values[place][move] += 0.5 * (reward + 0.9 * max(values[then]) - values[place][move])
    for line in lines:
        line.send(None)
    shortest = len(play(values, random.Random(0), 0.0))
    print("learned from", sorted(played))
"""


@pytest.fixture
def browser(gateway):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        yield kernel.open()


def test_a_learner_learns_from_simulators_in_a_role_of_their_own_and_they_end_with_it(gateway, browser):
    browser.run(NOTEBOOK)
    before = int(browser.run("print(len(play(values, random.Random(0), 0.0)))").out)
    cell = browser.run(LEARNING.format(workers=1, roles="--role simulator=2"))
    assert cell.status == "ok", cell
    lines = cell.out.splitlines()
    assert "[0] learned from [0, 1]" in lines and "[simulator 0] simulator 0 of 2" in lines and "[simulator 1] simulator 1 of 2" in lines
    assert before > 6 and browser.run("print(shortest)").out == "6\n"
    until(lambda: not members(gateway))


def test_more_simulators_are_a_matter_of_the_words_alone(browser):
    browser.run(NOTEBOOK)
    assert "learned from [0, 1, 2]" in browser.run(LEARNING.format(workers=1, roles="--role simulator=3")).out


def test_what_a_simulator_fails_of_ends_the_cell_and_is_raised_as_what_it_is(gateway, browser):
    cell = browser.run(
        "%%distributed -w 1 -e none --role simulator=2 --name broken\nimport time\n"
        "if (ROLE, RANK) == ('simulator', 1):\n    raise LookupError('no such world')\ntime.sleep(600)"
    )
    assert (cell.ename, cell.evalue) == ("LookupError", "no such world"), cell
    told = next(each for each in gateway.call("GET", "/api/bursts").json()["bursts"] if each["name"] == "broken")
    assert told["message"].startswith("Simulator 1 failed"), told


def test_a_simulator_that_is_killed_is_named(browser):
    cell = browser.run(
        "%%distributed -w 1 -e none --role simulator=2\nimport os, signal, time\n"
        "if (ROLE, RANK) == ('simulator', 1):\n    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(600)"
    )
    assert cell.status == "error" and "simulator 1" in cell.evalue.lower() and "killed" in cell.evalue, cell


def test_a_simulator_that_fails_because_the_workers_are_through_and_gone_is_no_failure(browser):
    cell = browser.run(
        "%%distributed -w 1 -e none --role simulator=1\nimport time\nfrom multiprocessing.connection import Client, Listener\n"
        "def place(address):\n    host, _, port = address.rpartition(':')\n    return host, int(port)\n"
        "if ROLE == 'simulator':\n    with Listener(place(ADDRESSES[ROLE][0])) as door, door.accept() as learner:\n"
        "        while True:\n            learner.send(2 * learner.recv())\n"
        "else:\n    while True:\n        try:\n            line = Client(place(ADDRESSES['simulator'][0]))\n            break\n"
        "        except ConnectionRefusedError:\n            time.sleep(0.05)\n"
        "    line.send(21)\n    answer = line.recv()\n    line.close()"
    )
    assert cell.status == "ok", cell
    assert browser.run("print(answer)").out == "42\n"


def test_what_simulators_were_doing_ends_like_any_interrupted_cell(browser, tmp_path):
    cell = browser.run(
        "%%distributed -w 1 -e none --role simulator=1\nimport pathlib, time\n"
        f"mark = pathlib.Path({str(tmp_path)!r}, 'told')\n"
        "if ROLE == 'simulator':\n    mark.with_name('begun').touch()\n"
        "    try:\n        time.sleep(600)\n    finally:\n        mark.touch()\n"
        "while not mark.with_name('begun').exists():\n    time.sleep(0.02)"
    )
    assert cell.status == "ok" and (tmp_path / "told").exists(), cell


def test_a_name_that_the_notebook_has_for_role_is_its_own_where_there_are_no_roles(browser):
    browser.run("ROLE = 'mine'")
    assert "[0] mine" in browser.run("%%distributed -w 2 -e none\nprint(ROLE)").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--role simulator", "simulator=3"),
        ("--role simulator=0", "simulator=3"),
        ("--role simulator=2,colour=red", "gpus, cpu, memory, image"),
        ("--role simulator=2,gpus=1,gpus=2", "once each"),
        ("--role simulator=2 --role simulator=2", "two roles named simulator"),
        ("--role worker=2", "-w says"),
        ("--role Sim=2", "small letters"),
        ("--ps 2", "-e tf-ps"),
    ],
)
def test_what_is_no_role_is_refused_before_anything_starts(browser, words, told):
    cell = browser.run(f"%%distributed -e none {words}\nprint(1)")
    assert cell.status == "error" and told in cell.err, cell


def test_workers_with_roles_beside_them_keep_their_number(browser):
    cell = browser.run("%%distributed -e none -w 1:3 --role simulator=2\nprint(1)")
    assert cell.status == "error" and "keep their number" in cell.err, cell


def test_what_only_pods_can_have_is_said_to_be_left_out(browser):
    cell = browser.run("%%distributed -e none -w 1 --role simulator=1,cpu=2,memory=1Gi\nprint(ROLE)")
    assert cell.status == "ok" and "no image, cpu and memory of their own" in cell.err, cell


def members(gateway) -> list[int]:
    """Processes of ranks of this gateway's bursts."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"ELASTIC_BURST={gateway.machine.root}" in (process / "environ").read_text()
        except OSError:
            continue
        if ours:
            found.append(int(process.name))
    return found
