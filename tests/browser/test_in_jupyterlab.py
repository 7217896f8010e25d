"""What a user of JupyterLab sees in front of a gateway."""

from __future__ import annotations

import time

import pytest

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR4nGNgaDiAFTEMLQkAjnxAARpKRMEAAAAASUVORK5CYII="


@pytest.mark.case("G03")
def test_a_cell_that_waits_shows_a_line_that_counts_and_an_interrupt_ends_it(notebook):
    first = notebook("%%gpu\nimport time\nprint('mine')\ntime.sleep(600)")
    first.run_all()
    first.until(0, "mine")
    second = notebook("%%gpu\nprint('got it')", "print('behind it')")
    second.run_all()
    shown = second.until(0, "GPU")
    second.until_status("busy")
    second.page.wait_for_function("before => document.querySelector('.jp-OutputArea-output').innerText !== before", arg=shown)
    second.interrupt()
    text = second.until(0, "KeyboardInterrupt")
    assert "got it" not in text
    second.until_status("idle")
    assert second.text(1) == ""  # Run All ends with the cell that was stopped
    first.interrupt()
    first.until(0, "KeyboardInterrupt")
    second.run_all()
    second.until(0, "got it")
    second.until(1, "behind it")


@pytest.mark.case("P03")
def test_widgets_carry_binary_data_both_ways(notebook):
    show = f"import base64, ipywidgets\nipywidgets.Image(value=base64.b64decode({PNG!r}))"
    upload = "chosen = ipywidgets.FileUpload()\nchosen"
    sheet = notebook(show, upload)
    sheet.run_all()
    sheet.output(0).locator("img").wait_for()
    natural = sheet.output(0).locator("img").evaluate("async image => { await image.decode(); return image.naturalWidth }")
    assert natural == 8
    with sheet.page.expect_file_chooser() as chooser:
        sheet.page.get_by_role("button", name="Upload (0)").click()
    chooser.value.set_files({"name": "bytes.bin", "mimeType": "application/octet-stream", "buffer": b"\xff\x00\x80\x01" * 1000})
    sheet.page.get_by_role("button", name="Upload (1)").wait_for()
    sheet.run_cell("print(len(chosen.value[0].content), bytes(chosen.value[0].content[:4]))")
    assert sheet.text(2) == r"4000 b'\xff\x00\x80\x01'"


def test_a_cell_can_ask_for_input(notebook):
    sheet = notebook("name = input('Who? ')\nprint('Hello', name)")
    sheet.run_all()
    sheet.page.locator(".jp-Stdin-input").fill("Ann")
    sheet.page.keyboard.press("Enter")
    assert "Hello Ann" in sheet.until(0, "Hello")


@pytest.mark.case("K03")
def test_a_killed_gateway_costs_no_line_repeats_none_and_queued_cells_run(servers, notebook):
    count = "import time\nkept = 42\nfor i in range(120):\n    print('line', i)\n    time.sleep(0.1)"
    sheet = notebook(count, "print('kept', kept)")
    sheet.run_all()
    sheet.until(0, "line 20")
    servers.kill_gateway()
    sheet.until_status("starting")
    time.sleep(3)
    servers.start_gateway()
    sheet.until(0, "line 119")
    assert sheet.text(0).split("\n")[:120] == [f"line {i}" for i in range(120)]
    assert sheet.text(0).count("line") == 120
    assert "kept 42" in sheet.until(1, "kept")
    sheet.until_status("idle")


@pytest.mark.case("L08")
def test_a_kernel_that_dies_says_so_in_its_cell_and_comes_back(notebook):
    sheet = notebook("import os\nos._exit(3)", "print('never')")
    sheet.run_all()
    sheet.until(0, "exit code 3")
    sheet.page.get_by_text("It will restart automatically").wait_for()
    sheet.page.get_by_role("button", name="Ok", exact=True).click()
    sheet.until_status("idle")
    sheet.run_cell("print('back')")
    assert (sheet.text(1), sheet.text(2)) == ("", "back")


def test_a_restart_that_the_user_asks_for_is_no_death_and_ends_idle(notebook):
    sheet = notebook("kept = 1", "'kept' in globals()")
    sheet.run_one(0)
    sheet.menu("Kernel", "Restart Kernel…")
    sheet.page.get_by_role("button", name="Confirm Kernel Restart").click()
    sheet.until_status("idle")
    assert sheet.run_one(1) == "False"
    assert sheet.page.get_by_text("appears to have died").count() == 0


def test_a_cell_with_the_tag_cpu_does_not_wait_for_a_gpu(notebook):
    first = notebook("%%gpu\nimport time\nprint('mine')\ntime.sleep(600)")
    first.run_all()
    first.until(0, "mine")
    second = notebook("import ctypes\nprint(ctypes.CDLL(None).getpid() > 0)")  # which may do anything, so it would wait
    second.tag(0, "cpu")
    assert second.run_one(0) == "True"
    first.interrupt()
    first.until(0, "KeyboardInterrupt")
