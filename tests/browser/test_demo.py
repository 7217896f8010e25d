"""The demo as a newcomer runs it: one command, one address, the example notebook, one Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.pages import SECONDS


class Demo:
    """The command, up to the address that it prints."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "demo", "--simulated-gpus=2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        self.said = ""
        while "Ctrl-C" not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        self.addresses = re.findall(r"http://\S+", self.said)
        self.servers = children_of(self.process.pid)
        config = next(word for pid in self.servers for word in command_line(pid) if word.startswith("--config="))
        self.folder = Path(config.partition("=")[2]).parent

    def end(self, signum: int) -> int:
        self.process.send_signal(signum)
        return self.process.wait(SECONDS)

    def nothing_is_left(self) -> bool:
        return not any(alive(pid) for pid in self.servers)


def children_of(pid: int) -> set[int]:
    """Process ids of all that a process has started, and what those have started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


@pytest.fixture
def demo() -> Iterator[Demo]:
    running = Demo()
    yield running
    if running.process.poll() is None:
        running.end(signal.SIGTERM)


def shows(said: list[str]) -> None:
    """What the example notebook promises, however its cells were run."""
    assert said[1] == "285"
    assert "epoch 7: loss 0.125" in said[2]
    assert "Holds GPU-SIM-" in said[2]
    assert_in_order(said[4], "ann.ipynb works on GPU-SIM-", "ann.ipynb has GPU-SIM-", "ann.ipynb has given its GPU back; 1.0 GB")
    assert "the last loss was 0.125" in said[5]
    assert "Holds GPU-SIM-" in said[5]
    assert_in_order(said[6], "cleo.ipynb waits for a GPU, place 1", "has given its GPU back", "cleo.ipynb works on GPU-SIM-")
    assert_in_order(said[7], "waits for a GPU, place 1", "gives GPU-SIM-", "works on GPU-SIM-")
    assert "worth the wait" in said[9]
    assert "Holds GPU-SIM-" in said[9]
    assert "for 2 min" in said[10]
    assert "asks for it again" in said[11] or "holds no GPU now" in said[11]  # with Run All, a colleague who waited may be quicker
    assert said[12] == "Good night."


def assert_in_order(text: str, *parts: str) -> None:
    at, words = 0, " ".join(text.split())
    for part in parts:
        found = words.find(part, at)
        assert found >= 0, f"{part!r} isn't there in its turn: {text}"
        at = found


@pytest.mark.timeout(400)
def test_the_example_notebook_shows_what_it_promises_cell_by_cell(demo, visit):
    assert len(demo.addresses) == 1
    sheet = visit(demo.addresses[0], height=6000)  # JupyterLab takes what is out of sight off the page
    assert sheet.page.locator(".lm-TabBar-tab.jp-mod-dirty").count() == 0, "a notebook that was only opened has nothing to be saved"
    assert not any("token" in word and "=" in word for pid in demo.servers for word in command_line(pid))
    said = [sheet.run_one(number) for number in range(13)]
    assert "Has held no GPU yet" in said[0]
    shows(said)
    sheet.output(3).locator("img").wait_for()
    assert demo.end(signal.SIGINT) == 0
    assert demo.nothing_is_left()


@pytest.mark.timeout(400)
def test_the_example_notebook_shows_the_same_with_run_all(demo, visit):
    sheet = visit(demo.addresses[0], height=6000)
    sheet.page.set_default_timeout(300_000)
    sheet.run_all()
    sheet.until(12, "Good night.")
    shows([sheet.text(number) for number in range(13)])


def test_ctrl_c_ends_a_detached_cell_too(demo, visit):
    sheet = visit(demo.addresses[0])
    sheet.cell(0).locator(".cm-content").click()
    sheet.page.keyboard.press("Control+a")
    sheet.page.keyboard.insert_text("%%distributed -e none -w 1 --detach\nimport os, time\nprint('process', os.getpid())\ntime.sleep(600)")
    sheet.page.keyboard.press("Shift+Enter")
    worker = int(sheet.until(0, "process ").rpartition("process ")[2].split()[0])
    assert alive(worker)
    assert demo.end(signal.SIGINT) == 0
    assert not alive(worker) and not demo.folder.exists()


def test_a_demo_that_is_killed_leaves_nothing_behind(demo):
    demo.end(signal.SIGKILL)
    end = time.monotonic() + SECONDS
    while not demo.nothing_is_left():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert not demo.folder.exists()
