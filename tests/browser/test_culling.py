"""What JupyterLab shows of a kernel that is about to be ended for having been idle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.conftest import Servers, serving


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Where kernels end soon, open or not."""
    kernels = "c.ElasticMappingKernelManager"
    with serving(f"{kernels}.cull_idle_timeout = 14\n{kernels}.cull_warning = 6\n{kernels}.cull_connected = True") as running:
        yield running


@pytest.mark.case("C03")
def test_an_idle_kernel_says_below_its_last_cell_when_it_ends_and_a_cell_keeps_it(notebook):
    sheet = notebook("kept = 42\nprint('done')", "print('still', kept)")
    assert sheet.run_one(0) == "done"
    said = sheet.until(0, "will be ended in 6 s")
    assert "done" in said and "Run a cell to keep it" in said
    assert sheet.run_one(1) == "still 42"
    assert "will be ended" not in sheet.until(0, "goes on")
    sheet.until(1, "will be ended in 6 s")  # nobody comes
    sheet.until(1, "was ended after")
