"""What a burst says, as the notebook gets it: whole lines of several ranks, one rank's progress bars."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.magics.burst.outlet import Outlet


class Page:
    """Stands for the kernel's line to the page: what is sent is what is seen."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def send(self, _socket: Any, msg_type: str, content: dict[str, Any], **_: Any) -> None:
        self.sent.append((msg_type, content))

    def text(self, name: str) -> str:
        return "".join(content["text"] for kind, content in self.sent if kind == "stream" and content["name"] == name)


class KernelStream(io.StringIO):
    pub_thread = None  # as the kernel's own stdout and stderr have it


@pytest.fixture
def page() -> Page:
    return Page()


def outlet(page: Page, shown: tuple[int, ...] | None = None, workers: int = 2, stdout: io.StringIO | None = None) -> Outlet:
    shell = SimpleNamespace(kernel=SimpleNamespace(session=page, iopub_socket=None), parent_header={})
    with redirect_stdout(stdout or KernelStream()), redirect_stderr(KernelStream()):
        return Outlet(shell, shown, workers)


def prints(of: Outlet, rank: int, text: str, name: str = "stdout") -> None:
    of.event({"t": "out", "rank": rank, "name": name, "text": text})
    of.flush()


def test_of_several_ranks_the_first_ones_progress_bar_is_seen_as_it_goes_and_of_others_how_it_ends(page):
    several = outlet(page)
    for step in ("\r 0%", "\r 50%", "\r100%"):
        for rank in (0, 1):
            prints(several, rank, step, "stderr")
    assert page.text("stderr") == "\r[0]  0%\r[0]  50%\r[0] 100%"
    prints(several, 1, "\n", "stderr")
    prints(several, 0, "\n", "stderr")
    assert page.text("stderr") == "\r[0]  0%\r[0]  50%\r[0] 100%\n[1] 100%\n[0] 100%\n"


def test_a_progress_bar_that_nobody_interrupts_stays_on_its_line(page):
    several = outlet(page)
    prints(several, 0, "\r 50%", "stderr")
    prints(several, 0, "\r100%\n", "stderr")
    prints(several, 0, "done\n", "stderr")
    assert page.text("stderr") == "\r[0]  50%\r[0] 100%\n[0] done\n"


def test_a_bar_without_an_end_is_seen_as_it_was_last(page):
    several = outlet(page)
    prints(several, 1, "\r 1%\r 2%", "stderr")
    several.end()
    assert page.text("stderr") == "[1]  2%\n"


def test_one_rank_alone_is_shown_as_it_prints(page):
    alone = outlet(page, shown=(0,))
    prints(alone, 0, "\r 0%")
    prints(alone, 0, "\r100%\n")
    assert page.text("stdout") == "\r 0%\r100%\n"


def test_what_stands_in_for_the_notebooks_streams_gets_what_is_printed(page):
    caught = io.StringIO()
    prints(outlet(page, stdout=caught), 0, "out\n")
    assert (caught.getvalue(), page.sent) == ("[0] out\n", [])


def test_one_rank_alone_may_clear_what_is_shown_and_the_status_comes_again(page):
    alone = outlet(page, shown=(0,))
    alone.status("1/1 running")
    alone.event({"t": "show", "rank": 0, "msg_type": "clear_output", "content": {"wait": True}})
    alone.status("done", now=True)
    assert [kind for kind, _ in page.sent] == ["display_data", "clear_output", "display_data"]


def test_of_several_ranks_none_clears_what_the_others_have_shown(page):
    several = outlet(page)
    several.event({"t": "show", "rank": 0, "msg_type": "clear_output", "content": {"wait": False}})
    assert page.sent == []
