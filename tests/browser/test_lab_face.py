"""What the gateway's own JupyterLab extension shows: status item, panel, notices, tags."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import JupyterLab
from tests.browser.pages import SECONDS, chromium

FRONTEND = Path(__file__).parents[2] / "gateway" / "lab" / "labextension" / "package.json"

pytestmark = pytest.mark.skipif(
    not FRONTEND.is_file() and shutil.which("npm") is None,
    reason="JupyterLab's face was not built, as there was no npm; install Node.js 20 or newer and the package again",
)


def status(sheet):
    return sheet.page.locator(".jp-ElasticStatus-button")


def until_shown(sheet, text: str) -> None:
    status(sheet).get_by_text(re.compile(text)).wait_for()


@pytest.mark.timeout(300)
def test_the_status_item_follows_the_kernel_through_its_phases(notebook):
    first = notebook("1", "%%gpu\n%gpu simulate 1GB\ninput('go on?')", "%%gpu\n%gpu hold 10m", "%gpu hold 0")
    until_shown(first, r"^CPU$")
    first.cell(1).locator(".cm-content").click()
    first.page.keyboard.press("Shift+Enter")
    until_shown(first, r"^GPU running$")
    second = notebook("%%gpu\ninput('and now?')")
    until_shown(second, r"^CPU$")
    second.run_all()
    until_shown(second, r"^GPU queue: 1 · 0:0\d$")
    assert "place 1 in the queue" in status(second).get_attribute("aria-label")
    first.page.locator(".jp-Stdin-input").press("Enter")
    until_shown(second, r"^GPU running$")
    until_shown(first, r"^Parked · 1 GB$")
    second.page.locator(".jp-Stdin-input").press("Enter")
    until_shown(second, r"^GPU idle · \d:\d\d$")
    first.run_one(2)
    until_shown(first, r"^GPU held · (10:00|9:\d\d)$")
    first.run_one(3)
    until_shown(first, r"^GPU idle · \d:\d\d$")


def test_while_the_gateway_is_away_the_status_item_says_so(servers, notebook):
    sheet = notebook("1")
    until_shown(sheet, r"^CPU$")
    servers.kill_gateway()
    until_shown(sheet, "GPU gateway away")
    servers.start_gateway()
    until_shown(sheet, r"^CPU$")


@pytest.fixture(scope="module")
def other_lab(servers) -> Iterator[JupyterLab]:
    """Another user's, in the dark theme, before the same gateway."""
    root = Path(tempfile.mkdtemp(prefix="eg-bo-", dir="/tmp"))
    lab = JupyterLab(root, f"http://127.0.0.1:{servers.gateway_port}", env={"KERNEL_USERNAME": "bo"})
    (root / "settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings").write_text('{"theme": "JupyterLab Dark"}')
    yield lab
    lab.end()
    shutil.rmtree(root)


def panel(sheet, section: str):
    """A part of the panel, which is opened by the status item where it isn't yet."""
    if sheet.page.locator(".jp-ElasticPanel").is_hidden():
        status(sheet).click()
    return sheet.page.get_by_role("region", name=section, exact=True)


def line(sheet, section: str, name: str):
    return panel(sheet, section).get_by_role("listitem").filter(has_text=name).first


@pytest.mark.case("G03")
@pytest.mark.timeout(300)
def test_the_panel_shows_two_users_the_site_and_lets_each_act_on_their_own(notebook, other_lab, visit, request):
    ann = notebook("%%gpu\n%gpu simulate 1GB\ninput('go on?')")
    until_shown(ann, "^CPU$")  # JupyterLab 4.4 and 4.5 pass over what is run before the notebook is the one in front
    ann.run_all()
    until_shown(ann, r"^GPU running$")
    name = f"{request.node.name}-1.ipynb"
    bo = visit(other_lab.new("bo", ["%%gpu\n1"]))
    until_shown(bo, "^CPU$")
    bo.run_all()
    until_shown(bo, "^GPU queue: 1")
    line(ann, "Queue", "bo.ipynb").get_by_text(re.compile(r"bo · 0:\d\d")).wait_for()
    assert line(ann, "Your kernels", name).get_by_role("button", name="Release").is_disabled()
    assert panel(ann, "Your kernels").get_by_text("bo.ipynb").count() == 0
    line(bo, "GPUs", name).wait_for()
    assert panel(bo, "Your kernels").get_by_text(name).count() == 0
    ann.page.locator(".Toastify").get_by_text("bo waits").wait_for()  # before the GPU is taken back
    ann.page.locator(".Toastify").get_by_role("button", name="Keep for 30 min").click()
    line(ann, "Your kernels", name).get_by_role("button", name="End the hold").wait_for()
    ann.page.locator(".jp-Stdin-input").press("Enter")
    until_shown(ann, r"^GPU held · (30:00|29:\d\d)$")
    line(ann, "Your kernels", name).get_by_role("button", name="Release").press("Enter")  # by the keyboard
    until_shown(ann, r"^Parked · 1 GB$")
    until_shown(bo, "^GPU idle")
    line(ann, "GPUs", "bo.ipynb").wait_for()
    panel(bo, "Your GPU time today").get_by_text("held").wait_for()


@pytest.mark.timeout(300)
def test_the_panel_shows_a_distributed_cell_its_ranks_what_they_print_and_which_has_failed(notebook, tmp_path):
    cell = f"""%%distributed -e none -w 3
import os, time
print('\\n' * 60, 'I am', RANK, flush=True)
open({str(tmp_path)!r} + f'/{{RANK}}', 'w').close()
while len(os.listdir({str(tmp_path)!r})) < 3: time.sleep(0.01)  # all have printed before one ends them
if RANK == 1: raise ValueError('an empty batch')
time.sleep(600)"""
    sheet = notebook(cell)
    panel(sheet, "Your kernels").wait_for()
    sheet.run_all()
    burst = line(sheet, "Distributed cells", "burst-")
    burst.get_by_text("failed after").wait_for()
    burst.locator("summary").press("Enter")
    burst.get_by_role("button", name="Rank 1: failed").wait_for()
    log = burst.locator(".jp-ElasticLog")
    log.get_by_text("ValueError: an empty batch").wait_for()  # the rank that has failed is shown first
    assert log.evaluate("box => box.scrollTop > 0 && box.scrollHeight - box.scrollTop - box.clientHeight < 20"), "its last words are seen"
    burst.get_by_role("button", name="Rank 2: ended").click()
    log.get_by_text("I am 2").wait_for()


@pytest.mark.timeout(300)
def test_a_distributed_cell_is_cancelled_from_the_panel(notebook):
    sheet = notebook("%%distributed -e none -w 2\nprint('begun', flush=True)\nimport time; time.sleep(600)")
    panel(sheet, "Your kernels").wait_for()
    sheet.run_all()
    sheet.until(0, "begun")
    burst = line(sheet, "Distributed cells", "running")
    burst.get_by_role("button", name="Cancel").click()
    sheet.page.get_by_role("button", name="Cancel workers").click()
    panel(sheet, "Distributed cells").get_by_text("cancelled after").first.wait_for()


def test_cells_are_tagged_by_a_click_and_show_it(servers, notebook, request):
    sheet = notebook("1", "2")
    until_shown(sheet, "^CPU$")
    sheet.cell(1).locator(".cm-content").click()
    sheet.page.get_by_label("GPU need of the chosen cells").select_option("gpu")
    assert sheet.cell(1).get_attribute("data-elastic-need") == "gpu"
    assert sheet.run_one(1) == "2"
    until_shown(sheet, "^GPU idle")
    sheet.page.keyboard.press("Control+s")
    file = servers.lab.notebooks / f"{request.node.name}-1.ipynb"
    sheet.page.locator(".jp-mod-dirty").wait_for(state="detached")
    assert [cell["metadata"].get("tags") for cell in json.loads(file.read_text())["cells"]][:2] == [None, ["gpu"]]


def test_notebook_seven_has_the_status_in_its_toolbar_and_the_panel_beside(classic, visit):
    sheet = visit(classic.new("face", ["%%gpu\n1"]))
    sheet.run_all()
    sheet.page.locator(".jp-Toolbar .jp-ElasticStatus-button").get_by_text(re.compile("^GPU idle")).wait_for()
    line(sheet, "Your kernels", "face.ipynb").get_by_role("button", name="Release").wait_for()


@pytest.fixture
def lab_alone(tmp_path) -> Iterator:
    """``lab_alone("lines of its configuration")``: a JupyterLab with no gateway before it."""
    chromium()
    roots, labs = [], []

    def make(more: str) -> JupyterLab:
        roots.append(Path(tempfile.mkdtemp(prefix="eg-al-", dir="/tmp")))
        labs.append(JupyterLab(roots[-1], "", more=more.format(root=roots[-1])))
        return labs[-1]

    yield make
    for lab, root in zip(labs, roots, strict=True):
        lab.end()
        shutil.rmtree(root)


@pytest.mark.timeout(240)
def test_with_the_gateway_inside_labs_own_server_it_works_alike(lab_alone, visit):
    lab = lab_alone(
        "c.ElasticGateway.embedded = True\nc.ElasticGateway.simulated_gpus = 1\nc.LocalBackend.runtime_dir = '{root}/k'\n"
        "c.SimulatedGpu.park_seconds = 0.1"
    )
    sheet = visit(lab.new("inside", ["%%gpu\n1"]))
    sheet.run_all()
    until_shown(sheet, "^GPU idle")
    line(sheet, "Your kernels", "inside.ipynb").get_by_role("button", name="Release").click()
    until_shown(sheet, "^CPU$")


@pytest.mark.timeout(240)
def test_a_lab_without_a_gateway_shows_nothing_and_asks_nothing(lab_alone, browser):
    page = browser.new_page()
    page.set_default_timeout(SECONDS * 1000)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(lab_alone("").new("plain", ["1"], kernel="python3"))
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    page.locator("[data-status=idle]").first.wait_for()
    assert any("jupyter-elastic-gateway/static/remoteEntry" in url for url in asked)  # it is installed
    assert [url for url in asked if "/api/gpu" in url or "/api/bursts" in url] == []
    assert page.locator(".jp-ElasticPanel, .jp-ElasticStatus-button, .jp-ElasticChoice").count() == 0
    assert errors == []
    page.close()
