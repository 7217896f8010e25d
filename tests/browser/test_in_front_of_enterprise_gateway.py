"""JupyterLab in front of an Enterprise Gateway whose kernels an elastic gateway runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser.lab import JupyterLab
from tests.browser.pages import Notebook, browser, chromium, visit  # noqa: F401 - fixtures
from tests.enterprise.gateways import Enterprise
from tests.integration.machine import Machine
from tests.integration.serving import Gateway, end

pytestmark = pytest.mark.timeout(600)  # an environment for Enterprise Gateway may have to be made first


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[JupyterLab]:
    chromium()
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    elastic = Gateway(machine)
    enterprise = Enterprise(elastic)
    monkeypatch.setenv("KERNEL_USERNAME", "ada")  # as Enterprise Gateway's documents have it for a user's Lab
    root = Path(tempfile.mkdtemp(prefix="eg-b-", dir="/tmp"))
    found = JupyterLab(root, enterprise.url, token="")
    yield found
    found.end()
    enterprise.stop()
    end(elastic)
    machine.clean()
    shutil.rmtree(root)


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
