"""What the gateway's own JupyterLab extension shows: status item, panel, notices, tags."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

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
