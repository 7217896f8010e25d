"""What notebooks add to Python works in the ranks or is refused with the reason: ``await``, ``!`` lines, magics, display."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.magics import capture


@pytest.fixture
def typed(notebook, shell):
    """The notebook's cells go through a real IPython."""
    notebook.names = shell.user_ns
    return notebook


AWAITING = """
import asyncio
await asyncio.sleep(0)
event = asyncio.Event()
async def ag():
    yield 1
async for i in ag(): print('async', i)
event.set()
await event.wait()
await asyncio.sleep(0, 42)
"""


@pytest.mark.case("D11")
def test_await_works_at_the_top_in_one_event_loop(notebook):
    notebook.there(AWAITING, returning={"out": ["i"]})
    assert notebook.answer.output == "async 1\n" and notebook.answer.shown == [{"text/plain": "42"}] and notebook["i"] == 1


def test_the_last_expression_is_shown_unless_a_semicolon_ends_it(notebook):
    for source, shown in (
        ("x = 1\n40 + 2", ["42"]),
        ("40 + 2;", []),
        ("'a;'  # ;", ["'a;'"]),
        ("40 + 2; # end", []),
        ("None", []),
        ("x = 5", []),
    ):
        notebook.there(source)
        assert [data["text/plain"] for data in notebook.answer.shown] == shown, source


@pytest.mark.parametrize("source", ["", "# nothing", "def lonely(): return 1", "a = 1\r\nb = a\r\n", "if 1:\n\tx = 2"])
@pytest.mark.case("D11")
def test_cells_of_every_form_run(notebook, source):
    notebook.there(source)


@pytest.mark.case("D11")
def test_strings_of_several_lines_stay_as_they_are(notebook):
    notebook.there('s = """a\n  b\n\tc\n"""')
    assert notebook["s"] == "a\n  b\n\tc\n"


@pytest.mark.case("D11")
def test_names_are_the_modules_own(notebook):
    notebook.there("class Q: pass\ndef deco(f): return f\n@deco\ndef h(): return z\nz = 4\nr = h(), [z for _ in range(1)], __name__")
    assert notebook["r"] == (4, [4], "__main__")


def test_annotations_of_earlier_cells_futures_hold(notebook, shell):
    shell.run_cell("from __future__ import annotations")
    notebook.names = shell.user_ns
    notebook.there("def f(a: nothing.of.that.name): pass")
    assert notebook["f"].__annotations__ == {"a": "nothing.of.that.name"}


def test_lines_for_the_system_run_in_the_rank_with_the_cells_variables(typed):
    typed.names.update(word="hello", n=2)
    typed.there("!echo {word} $n {n + 1}\nout = !printf 'a\\nb $word'\nx = 1")
    assert typed.answer.output == "hello 2 3\n" and typed["out"] == ["a", "b hello"] and typed["x"] == 1


def test_ipythons_own_magics_run_in_the_rank_and_leave_nothing_behind(typed):
    typed.names["value"] = 4
    report = typed.there("%time y = value * 2\n%env CAPTURED=yes\nimport os\nz = os.environ['CAPTURED']")
    assert typed["y"] == 8 and typed["z"] == "yes" and "Wall time" in typed.answer.output
    assert set(report.assigned) == {"y", "os", "z"} and not report.skipped


def test_cell_magics_of_ipythons_and_percent_matplotlib_run_in_the_rank_too(typed):
    typed.there("%%bash\necho from $RANK_OF_BASH bash")
    assert typed.answer.output == "from bash\n"
    pytest.importorskip("matplotlib", reason="matplotlib is part of the test extra: pip install -e '.[test]'")
    typed.there("%matplotlib inline\nx = 1")
    assert typed["x"] == 1


def test_a_magic_of_the_kernel_is_refused_with_the_reason(typed, shell):
    shell.register_magic_function(lambda line: None, "line", "mine_alone")
    for source in ("x = 1\n%gpu hold 5m", "%mine_alone"):
        with pytest.raises(capture.CaptureError, match="can't run in the ranks: they belong to this kernel"):
            typed.pack(source)


def test_a_rank_without_ipython_says_so(notebook):
    code = (
        "import sys; sys.modules['IPython'] = None\n"
        "from gateway.pod.rank.shell import Shell\n"
        "s = Shell({}, print, {})\ns.system('echo runs')\ntry: s.run_line_magic('time', '1')\nexcept RuntimeError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("runs") and "no IPython" in done.stdout


def test_display_comes_home_as_notebooks_show_it(notebook):
    notebook.here(
        "class H:\n    def _repr_html_(self): return '<b>x</b>'\n    def __repr__(self): return 'H'\n"
        "    def _repr_png_(self): raise OSError"
    )
    notebook.there("display(H(), 5)\nH()")
    assert notebook.answer.shown == [
        {"text/plain": "H", "text/html": "<b>x</b>"},
        {"text/plain": "5"},
        {"text/plain": "H", "text/html": "<b>x</b>"},
    ]


def test_ipythons_own_display_comes_home_too(typed):
    typed.there("from IPython.display import display as show, Markdown\nshow(Markdown('*a*'))")
    assert typed.answer.shown[0]["text/markdown"] == "*a*"


def test_a_figure_comes_home_as_a_picture(notebook):
    pytest.importorskip("matplotlib", reason="matplotlib is part of the test extra: pip install -e '.[test]'")
    notebook.there(
        "from matplotlib.figure import Figure\nf = Figure(figsize=(1, 1))\nf.subplots().plot([1, 2])\ndisplay(f)", returning={"out": []}
    )
    assert notebook.answer.shown[0]["image/png"].startswith("iVBOR")


def test_figures_that_a_cell_draws_are_shown_like_in_a_notebook(typed):
    pytest.importorskip("matplotlib", reason="matplotlib is part of the test extra: pip install -e '.[test]'")
    drawn = "import os; os.environ['MPLBACKEND'] = 'module://matplotlib_inline.backend_inline'\nimport matplotlib.pyplot as plt\n"
    typed.there(f"{drawn}plt.plot([1, 2])\nplt.show()\nplt.plot([2, 1])\nplt.figure().subplots();", returning={"out": []})
    assert ["image/png" in shown for shown in typed.answer.shown] == [True, True, True], typed.answer.output
    typed.there(f"{drawn}plt.switch_backend('agg')\nplt.plot([1, 2]);", returning={"out": []})
    assert typed.answer.shown == []


def test_what_a_helper_shows_by_ipython_is_shown(typed):
    typed.here("def report():\n    from IPython.display import display, Markdown\n    display(Markdown('*b*'))")
    typed.there("report()")
    assert typed.answer.shown[0]["text/markdown"] == "*b*" and not typed.answer.output


def test_what_is_shown_may_be_cleared(typed):
    typed.there("from IPython.display import clear_output\nclear_output(wait=True)")
    assert typed.answer.shown[-1] == {"wait": True}
