"""A rank's exception in the notebook: shown from the cell's own line on, raised as it is."""

from __future__ import annotations

import pickle

import cloudpickle
import pytest
from IPython.core.interactiveshell import InteractiveShell

from gateway.magics.burst.raised import shown_alone
from gateway.protocol.transfer.failures import traceback_of
from gateway.protocol.transfer.source import remember

CELL = "%%away -w 2\nx = 1\nx / 0"
CALL = "get_ipython().run_cell_magic('away', '-w 2', 'x = 1')"


@pytest.fixture
def run(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]):
    """Runs a cell in a shell where ``%%away`` raises what a rank has raised in line 3; what is shown then."""
    shell.colors = "nocolor"

    def away(line: str, cell: str) -> None:
        remember("<cell of a rank>", CELL)
        raise shown_alone(ZeroDivisionError("qa").with_traceback(traceback_of([("<cell of a rank>", "<module>", 3, 1)])))

    shell.register_magic_function(away, "cell", "away")

    def shown(cell: str) -> str:
        shell.run_cell(cell)
        return capsys.readouterr().out

    return shown


def test_nothing_is_shown_of_the_call_that_ipython_makes_of_the_cell(run):
    for text in (run(CELL), run("%tb")):
        assert "----> 3 x / 0" in text and text.rstrip().endswith("ZeroDivisionError: qa")
        assert "run_cell_magic" not in text and "raised.py" not in text and "shown_alone" not in text


def test_what_calls_the_magic_in_a_function_or_raises_it_anew_is_shown(run):
    assert "----> 3 f()" in run(f"def f():\n    {CALL}\nf()")
    run(f"try:\n    {CALL}\nexcept Exception as error:\n    kept = error")
    text = run("raise kept")
    assert "----> 1 raise kept" in text and "----> 3 x / 0" in text


def test_the_exception_can_be_pickled_as_before(run, shell):
    run(f"try:\n    {CALL}\nexcept Exception as error:\n    kept = error")
    assert str(pickle.loads(cloudpickle.dumps(shell.user_ns["kept"]))) == "qa"


def test_an_exception_that_lets_nothing_be_set_is_raised_all_the_same():
    class Closed(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError(f"{name} can't be set")

    error = Closed("qa")
    assert shown_alone(error) is error and not hasattr(error, "_render_traceback_")
