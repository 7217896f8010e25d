"""What JupyterLab tells before a GPU is released or a kernel ended, for having been idle, and what a page does that nobody sees."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.browser.conftest import Servers, serving
from tests.browser.pages import SHOTS
from tests.browser.test_lab_face import pytestmark as needs_the_face
from tests.browser.test_lab_face import status, until_shown

pytestmark = [needs_the_face, pytest.mark.timeout(300)]

KEEP = "Keep for 30 min"


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Where a GPU is released after the shortest time that is announced, and an idle kernel ends after a little more."""
    kernels = "c.ElasticMappingKernelManager"
    ends = f"{kernels}.cull_idle_timeout = 75\n{kernels}.cull_warning = 30\n{kernels}.cull_connected = True"
    with serving(f"c.Leases.idle_timeout = 60\n{ends}") as running:
        yield running


def toast(sheet, text: str):
    return sheet.page.locator(".Toastify__toast").filter(has_text=re.compile(text)).first


def shot(sheet, request, what: str) -> None:
    """Of the moment, for people to look at."""
    SHOTS.mkdir(exist_ok=True)
    sheet.page.screenshot(path=SHOTS / f"{request.node.name}-{what}.png")


def test_before_an_idle_gpu_is_released_a_notice_says_so_and_a_click_keeps_it(notebook, request):
    sheet = notebook("%%gpu\n1", "%gpu hold 0")
    sheet.run_one(0)
    said = toast(
        sheet, r"test_before_an_idle_g\S*-1\.ipynb is idle: its GPU is released in (30|2\d) s\. Its state is parked, and comes back\."
    )
    said.wait_for()
    shot(sheet, request, "said")
    assert said.get_by_role("button", name="Release now").is_visible()
    said.get_by_role("button", name=KEEP).click()
    until_shown(sheet, r"^GPU held · (30:00|29:\d\d)$")
    sheet.run_one(1)  # the others want it


def test_a_click_in_the_notice_releases_an_idle_gpu_at_once(notebook):
    sheet = notebook("%%gpu\n%gpu simulate 1GB")
    sheet.run_one(0)
    toast(sheet, r"test_a_click\S* is idle: its GPU is released in").get_by_role("button", name="Release now").click()
    until_shown(sheet, r"^Parked · 1 GB$")


def test_before_an_idle_kernel_is_ended_a_notice_says_so_and_a_click_keeps_it(notebook, request):
    sheet = notebook("kept = 42\nprint('done')", "print('still', kept)")
    sheet.run_one(0)
    said = toast(
        sheet, r"test_before_an_idle_k\S*-1\.ipynb has been idle for long: its kernel ends in (30|2\d) s, and all variables with it\."
    )
    said.wait_for()
    shot(sheet, request, "said")
    said.get_by_role("button", name=KEEP).click()
    sheet.until(0, "goes on")
    said.wait_for(state="detached")
    assert sheet.run_one(1) == "still 42"


def test_a_page_that_nobody_sees_for_a_minute_asks_for_nothing_and_shows_what_is_so_once_it_is_seen(servers, notebook):
    sheet = notebook("%%gpu\n1")
    until_shown(sheet, "^CPU$")
    streams = []
    sheet.page.on("request", lambda asked: streams.append("asked") if "/api/gpu/events" in asked.url else None)
    sheet.page.on("requestfailed", lambda asked: streams.append("ended") if "/api/gpu/events" in asked.url else None)
    look(sheet, hidden=True)
    sheet.page.wait_for_timeout(61_000)
    assert streams == ["ended"]
    sheet.run_one(0)
    assert status(sheet).inner_text() == "CPU"  # nobody has told it
    look(sheet, hidden=False)
    until_shown(sheet, "^GPU idle")
    assert streams == ["ended", "asked"]


def look(sheet, hidden: bool) -> None:
    """As when the user goes to another tab, or comes back; a headless browser shows all its pages at once."""
    sheet.page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )
