"""Chromium, and a notebook that is open in one of its pages.

Screenshots of how each test ended lie in ``tests/browser/screenshots`` for people to look at.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS = 60  # for anything that a test waits for
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SHOTS = Path(__file__).parent / "screenshots"


def chromium() -> str:
    """Its path; skips the test where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on this machine; `apt-get install chromium` brings it")
    return path


class Notebook:
    """One notebook, open in a page of its own."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self._answered = False
        page.on("websocket", lambda socket: socket.on("framereceived", self._heard))

    def _heard(self, frame: str | bytes) -> None:
        self._answered = self._answered or (isinstance(frame, bytes) and b"kernel_info_reply" in frame)

    def ready(self) -> Notebook:
        """Wait until the notebook is shown and its kernel has answered: JupyterLab forgets cells that are run before."""
        self.shown()
        for _ in range(SECONDS * 20):
            if self._answered:
                break
            self.page.wait_for_timeout(50)
        self.until_status("idle")
        return self

    def shown(self) -> Notebook:
        """Wait until the notebook is shown, whatever its kernel does."""
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        return self

    def menu(self, name: str, item: str) -> None:
        self.page.locator(f".lm-MenuBar-itemLabel:text-is('{name}')").click()
        self.page.locator(f".lm-Menu-itemLabel:text-is('{item}')").click()

    def run_all(self) -> None:
        self.menu("Run", "Run All Cells")

    def run_one(self, number: int) -> str:
        """Run one cell and return what it has put out when it has ended."""
        self.cell(number).locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        self.cell(number).locator(".jp-InputPrompt").get_by_text(re.compile(r"\[\d+\]")).wait_for()
        return self.text(number)

    def run_cell(self, code: str) -> None:
        """Run ``code`` in a new last cell; returns when it has put something out."""
        count = self.page.locator(".jp-Notebook .jp-CodeCell").count()
        self.cell(count - 1).locator(".cm-content").click()
        for key in ("Escape", "b", "Enter"):
            self.page.keyboard.press(key)
        self.page.keyboard.insert_text(code)
        self.page.keyboard.press("Shift+Enter")
        self.cell(count).locator(".jp-OutputArea-output").first.wait_for()

    def tag(self, number: int, name: str) -> None:
        """Give a cell a tag in the property inspector, as a user does."""
        self.cell(number).locator(".cm-content").click()
        self.page.locator(".jp-SideBar .lm-TabBar-tab[title*='Property Inspector']").click()
        self.page.locator(".jp-Collapse-header", has_text="Common Tools").click()
        self.page.locator(".jp-CellTags-Add").click()
        self.page.keyboard.type(name)
        self.page.keyboard.press("Enter")
        self.page.locator(".jp-CellTags-Applied").get_by_text(name, exact=True).wait_for()

    def interrupt(self) -> None:
        self.menu("Kernel", "Interrupt Kernel")

    def cell(self, number: int) -> Any:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def output(self, number: int) -> Any:
        return self.cell(number).locator(".jp-OutputArea").first

    def text(self, number: int) -> str:
        """All that a cell has put out as text."""
        return "".join(self.cell(number).locator(".jp-OutputArea-output").all_inner_texts()).strip()

    def until(self, number: int, text: str) -> str:
        """Wait until a cell's output holds ``text``."""
        self.output(number).get_by_text(text, exact=False).first.wait_for()
        return self.text(number)

    @property
    def status(self) -> str:
        return self.page.locator(".jp-Notebook-ExecutionIndicator").get_attribute("data-status")  # type: ignore[no-any-return]

    def until_status(self, status: str) -> None:
        self.page.locator(f".jp-Notebook-ExecutionIndicator[data-status={status}]").wait_for()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for a module: while it is open, nothing else in this process can run an event loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; `pip install playwright` brings it")
    path = chromium()
    with playwright.sync_playwright() as driver:
        chrome = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield chrome
        chrome.close()


@pytest.fixture
def visit(browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Notebook]]:
    """Opens an address in a new page; how it looked at the end is kept."""
    pages: list[Any] = []

    def open_page(address: str, height: int = 1000, ready: bool = True) -> Notebook:
        page = browser.new_page(viewport={"width": 1280, "height": height})
        page.set_default_timeout(SECONDS * 1000)
        pages.append(page)
        sheet = Notebook(page)
        page.goto(address)
        return sheet.ready() if ready else sheet.shown()

    yield open_page
    SHOTS.mkdir(exist_ok=True)
    for number, page in enumerate(pages):
        page.screenshot(path=SHOTS / f"{request.node.name}-{number}.png")
        page.close()
