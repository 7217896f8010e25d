"""A real JupyterLab in headless Chromium, connected by ``--gateway-url`` to a gateway that tests may kill and start again.

Screenshots of how each test ended lie in ``tests/browser/screenshots`` for people to look at.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.lab.conftest import free_port

TOKEN = "browser-test-token"
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


class Servers:
    """A gateway with one simulated GPU and the JupyterLab in front of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notebooks = root / "notebooks"
        self.notebooks.mkdir()
        self.gateway_port, self.lab_port = free_port(), free_port()
        self.gateway: subprocess.Popen[bytes] | None = None
        common = f'c = get_config()\nc.IdentityProvider.token = {TOKEN!r}\nc.ServerApp.ip = "127.0.0.1"\nc.ServerApp.allow_root = True\n'
        (root / "gateway_config.py").write_text(f"""{common}
c.ServerApp.port = {self.gateway_port}
c.ElasticGateway.simulated_gpus = 1
c.SimulatedGpu.park_seconds = 0.1
c.Leases.min_hold = 0
c.LocalBackend.runtime_dir = {str(root / "k")!r}
""")
        (root / "lab_config.py").write_text(f"""{common}
c.ServerApp.port = {self.lab_port}
c.ServerApp.port_retries = 0
c.ServerApp.root_dir = {str(self.notebooks)!r}
c.ServerApp.open_browser = False
c.GatewayClient.auth_token = {TOKEN!r}
""")
        quiet = root / "settings" / "@jupyterlab" / "apputils-extension"
        quiet.mkdir(parents=True)
        (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        self.start_gateway()
        self.lab = self._start("lab", "jupyterlab", f"--gateway-url=http://127.0.0.1:{self.gateway_port}")
        self._answers(self.lab, "lab", self.lab_port)

    def start_gateway(self) -> None:
        self.gateway = self._start("gateway", "gateway.cli")
        self._answers(self.gateway, "gateway", self.gateway_port)

    def ensure_gateway(self) -> None:
        if self.gateway is None or self.gateway.poll() is not None:
            self.start_gateway()

    def kill_gateway(self) -> None:
        assert self.gateway is not None
        self.gateway.kill()
        self.gateway.wait()

    def end(self) -> None:
        assert self.gateway is not None
        self.lab.terminate()
        self.lab.wait(SECONDS)
        self.ensure_gateway()
        shutdown = [sys.executable, "-m", "gateway.cli", "shutdown", "--kernels", f"--url=http://127.0.0.1:{self.gateway_port}"]
        subprocess.run(shutdown, check=True, timeout=SECONDS)
        self.gateway.wait(SECONDS)

    def _start(self, name: str, module: str, *args: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "JUPYTERLAB_SETTINGS_DIR": str(self.root / "settings")}
        with (self.root / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-P", "-m", module, f"--config={self.root / f'{name}_config.py'}", *args]
            return subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def _answers(self, process: subprocess.Popen[bytes], name: str, port: int) -> None:
        for _ in range(SECONDS * 10):
            assert process.poll() is None, (self.root / f"{name}.log").read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api").close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"{name} doesn't answer")


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
        self.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        for _ in range(SECONDS * 20):
            if self._answered:
                break
            self.page.wait_for_timeout(50)
        self.until_status("idle")
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


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    chromium()
    root = Path(tempfile.mkdtemp(prefix="eg-b-", dir="/tmp"))  # short, as sockets will lie below
    running = Servers(root)
    yield running
    running.end()
    shutil.rmtree(root)


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

    def open_page(address: str, height: int = 1000) -> Notebook:
        page = browser.new_page(viewport={"width": 1280, "height": height})
        page.set_default_timeout(SECONDS * 1000)
        pages.append(page)
        sheet = Notebook(page)
        page.goto(address)
        return sheet.ready()

    yield open_page
    SHOTS.mkdir(exist_ok=True)
    for number, page in enumerate(pages):
        page.screenshot(path=SHOTS / f"{request.node.name}-{number}.png")
        page.close()


@pytest.fixture
def notebook(servers: Servers, visit: Callable[..., Notebook], request: pytest.FixtureRequest) -> Callable[..., Notebook]:
    """``notebook("print(1)", "2")`` opens a new notebook with these cells; its kernel is up."""
    made: list[int] = []

    def make(*cells: str) -> Notebook:
        servers.ensure_gateway()
        made.append(0)
        name = f"{request.node.name}-{len(made)}.ipynb"
        kernel = {"display_name": "Python (elastic GPU)", "language": "python", "name": "elastic-python"}
        sheet = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel})
        nbformat.write(sheet, servers.notebooks / name)
        return visit(f"http://127.0.0.1:{servers.lab_port}/lab/workspaces/{name[:-6]}/tree/{name}?token={TOKEN}")

    return make
