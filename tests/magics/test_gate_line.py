"""``%%gpu`` and ``%%cpu`` on the first line change nothing about how a cell runs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gateway.magics.gate_line import strip_gate_line


@pytest.fixture(params=["%%gpu", "%%cpu"])
def first(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_body_is_an_ordinary_cell(shell: InteractiveShell, first: str) -> None:
    result = shell.run_cell(f"{first}\nx = 20\nx + 1")
    assert result.success
    assert result.result == 21
    assert shell.user_ns["x"] == 20


def test_it_counts_as_one_cell(shell: InteractiveShell, first: str) -> None:
    before = shell.execution_count
    result = shell.run_cell(f"{first}\n1 + 1", store_history=True)
    assert shell.execution_count == before + 1
    assert result.execution_count == before
    assert shell.user_ns["Out"][before] == 2
    assert shell.user_ns["In"][-1].startswith("\n1 + 1")


def test_an_error_is_the_cells_own_and_has_its_line(shell: InteractiveShell, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell(f"{first}\nx = 1\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert "line 3" in capsys.readouterr().out


def test_a_syntax_error_is_found_before_anything_runs(shell: InteractiveShell, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell(f"{first}\ny = 1\nz = (")
    assert isinstance(result.error_before_exec, SyntaxError)
    assert result.error_before_exec.lineno == 3
    assert "y" not in shell.user_ns


def test_a_cell_magic_may_follow(shell: InteractiveShell, first: str) -> None:
    assert shell.run_cell(f"{first}\n\n%%capture out\nprint('hi')").success
    assert shell.user_ns["out"].stdout == "hi\n"


def test_line_magics_and_await_work_below(shell: InteractiveShell, first: str) -> None:
    assert shell.run_cell(f"{first}\nimport asyncio\nw = %pwd\nawait asyncio.sleep(0)").success
    assert shell.user_ns["w"]


def test_inside_another_magic_it_is_taken_off_too(shell: InteractiveShell, first: str) -> None:
    assert shell.run_cell(f"%%time\n{first}\nx = 7").success
    assert shell.user_ns["x"] == 7


def test_both_may_stand_there(shell: InteractiveShell) -> None:
    assert shell.run_cell("%%gpu\n%%cpu\n3").result == 3


@pytest.mark.parametrize("nothing", ["%%gpu", "%%gpu\n", "%%gpu\n\n# later"])
def test_without_a_body_nothing_happens(shell: InteractiveShell, nothing: str) -> None:
    assert shell.run_cell(nothing).success


def test_words_behind_it_are_answered_with_a_sentence(shell: InteractiveShell, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell(f"{first} please\nran = 1")
    assert not result.success
    assert "ran" not in shell.user_ns
    said = capsys.readouterr()
    assert said.err.startswith("UsageError: %%gpu and %%cpu stand alone")
    assert "Traceback" not in said.out + said.err


def test_help_explains_it(shell: InteractiveShell, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell(f"{first}?")
    assert "needs a GPU" in capsys.readouterr().out


def test_text_that_only_contains_it_is_left_alone() -> None:
    for lines in (["x = 1\n", "%%gpu\n"], ["'%%gpu'\n"], ["%%gpus\n"], ["%%timeit\n", "x\n"], []):
        assert strip_gate_line(lines) == lines


def test_loading_it_twice_changes_nothing(shell: InteractiveShell) -> None:
    before = len(shell.input_transformers_cleanup)
    shell.run_line_magic("reload_ext", "gateway.magics")
    assert len(shell.input_transformers_cleanup) == before


def test_unloaded_it_leaves_nothing_behind(shell: InteractiveShell) -> None:
    shell.run_line_magic("unload_ext", "gateway.magics")
    assert not shell.run_cell("%%gpu\nx = 1").success
    assert "gpu" not in shell.magics_manager.magics["line"]
    shell.run_line_magic("load_ext", "gateway.magics")


def test_the_package_can_be_imported_where_there_is_no_ipython() -> None:
    code = "import sys; sys.modules['IPython'] = None; import gateway.magics, gateway.magics.gpu, gateway.magics.gate_line"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
