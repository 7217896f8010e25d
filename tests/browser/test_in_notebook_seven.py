"""What a user of Jupyter Notebook 7 sees in front of a gateway, and two browsers on one notebook."""

from __future__ import annotations


def test_notebook_seven_runs_cells_on_a_gpu_and_comes_back_after_a_killed_gateway(servers, classic, visit):
    cells = (
        "%%gpu\nimport os\nprint('on', os.environ['CUDA_VISIBLE_DEVICES'])",
        "name = input('Who? ')\nprint('Hello', name)",
        "print('last')",
    )
    sheet = visit(classic.new("seven", cells))
    sheet.run_all()
    sheet.until(0, "on ")
    sheet.page.locator(".jp-Stdin-input").fill("Ann")
    sheet.page.keyboard.press("Enter")
    sheet.until(1, "Hello Ann")
    sheet.until(2, "last")
    servers.kill_gateway()
    servers.start_gateway()
    sheet.run_cell("print('again', name)")
    assert sheet.text(3) == "again Ann"


def test_two_browsers_on_one_notebook_see_each_others_variables_and_each_their_own_output(servers, visit):
    servers.ensure_gateway()
    address = servers.lab.new("shared", ["x = 'of the first'\nprint('set')", "print('seen', x)"])
    first, second = visit(address), visit(address.replace("workspaces/shared", "workspaces/shared-too"))
    assert first.run_one(0) == "set"
    assert second.run_one(1) == "seen of the first"
    busy = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    first.page.locator(".jp-Notebook .jp-CodeCell").nth(0).locator(".cm-content").click()
    first.run_cell(busy)
    second.until_status("busy")  # the same kernel
    second.interrupt()
    first.until(2, "KeyboardInterrupt")
