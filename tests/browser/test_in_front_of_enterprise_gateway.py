"""JupyterLab in front of an Enterprise Gateway whose kernels an elastic gateway runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import JupyterLab
from tests.browser.pages import SECONDS, Notebook, browser, chromium, visit  # noqa: F401 - fixtures
from tests.enterprise.gateways import Enterprise
from tests.integration.machine import Machine
from tests.integration.serving import Gateway, end

pytestmark = pytest.mark.timeout(600)  # an environment for Enterprise Gateway may have to be made first


@pytest.fixture(scope="module")
def enterprise() -> Iterator[Enterprise]:
    chromium()
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    elastic = Gateway(machine)
    found = Enterprise(elastic)
    yield found
    found.stop()
    end(elastic)
    machine.clean()


@pytest.fixture(scope="module")
def lab_of(enterprise: Enterprise) -> Iterator[Callable[[str], JupyterLab]]:
    """``lab_of("ada")``: her JupyterLab, named as Enterprise Gateway's documents have it."""
    labs: dict[str, JupyterLab] = {}

    def of(user: str) -> JupyterLab:
        if user not in labs:
            root = Path(tempfile.mkdtemp(prefix="eg-b-", dir="/tmp"))
            labs[user] = JupyterLab(root, enterprise.url, token="", env={"KERNEL_USERNAME": user})
        return labs[user]

    yield of
    for lab in labs.values():
        lab.end()
        shutil.rmtree(lab.root)


@pytest.fixture
def lab(lab_of: Callable[[str], JupyterLab]) -> JupyterLab:
    return lab_of("ada")


def test_two_users_pages_take_turns_at_the_one_gpu_and_each_keeps_their_own(
    lab_of: Callable[[str], JupyterLab],
    visit: Callable[..., Notebook],  # noqa: F811
    enterprise: Enterprise,
):
    ada, bo = (
        visit(lab_of(user).new(user, ["%%gpu\nx = '" + user + "'\nprint('first', x)", "%%gpu\nprint('again', x)"], "elastic", "elastic"))
        for user in ("ada", "bo")
    )
    for _ in range(2):
        assert (ada.run_one(0), bo.run_one(0)) == ("first ada", "first bo")
        assert (ada.run_one(1), bo.run_one(1)) == ("again ada", "again bo")
    users = {lease["user"] for lease in enterprise.elastic.gpu()["leases"]}
    assert {"ada", "bo"} <= users
    assert len(enterprise.elastic.gpu()["gpus"]) == 1


def test_the_face_stays_out_of_the_way_where_what_stands_between_has_no_such_interface(
    lab_of: Callable[[str], JupyterLab],
    browser: Any,  # noqa: F811
):
    page = browser.new_page()
    page.set_default_timeout(SECONDS * 1000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/gpu" in request.url or "/api/bursts" in request.url else None)
    page.goto(lab_of("ada").new("aside", ["1"], "elastic", "elastic"))
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    page.locator("[data-status=idle]").first.wait_for()
    assert len(asked) == 1 and "/api/gpu/events" in asked[0]
    assert page.locator(".jp-ElasticPanel, .jp-ElasticStatus-button, .jp-SideBar [title=GPUs]").count() == 0
    assert page.locator(".jp-ElasticChoice:visible").count() == 0
    page.close()


def test_cells_run_by_way_of_an_enterprise_gateway_that_knows_nothing_of_leases(lab: JupyterLab, visit: Callable[..., Notebook]):  # noqa: F811
    cells = (
        "%%gpu\nimport os\nprint('on', os.environ['CUDA_VISIBLE_DEVICES'])",
        "name = input('Who? ')\nprint('Hello', name)",
        "1/0",
        "print(2)",
    )
    sheet = visit(lab.new("by-enterprise-gateway", cells, kernel="elastic", display="elastic"))
    sheet.run_all()
    assert sheet.until(0, "on").strip().startswith("on ")
    sheet.page.locator(".jp-Stdin-input").fill("Ann")
    sheet.page.keyboard.press("Enter")
    assert "Hello Ann" in sheet.until(1, "Hello")
    sheet.until(2, "ZeroDivisionError")
    assert sheet.text(3) == ""
