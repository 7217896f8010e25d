"""What a session of cells is known to have done, cell by cell: what is learned, what is never forgotten, and what is."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pod.cells.session import Session, Unknown, Verdict


def listed(text: str) -> list[str]:
    """Pieces of code, between semicolons; | stands for a new line."""
    return [piece.strip().replace("|", "\n") for line in text.strip().splitlines() for piece in line.split("; ")]


TORCH = "import torch\nmodel = torch.nn.Linear(2, 2)"


def session(*cells: str, told: bool = False) -> Session:
    """A session that has run ``cells``; ``told``: the kernel has answered *ok* to each."""
    new = Session()
    for cell in cells:
        ticket = new.ran(cell)
        if told:
            new.succeeded(ticket)
    return new


# looking


def test_a_look_changes_nothing() -> None:
    looked = session(TORCH, "x = []")
    before = looked.classify("x")
    for cell in ("x.append(model)", "x = model", "exec(y)", "%run z.py", "from math import *", "def f(): return x"):
        looked.classify(cell)
    assert looked.classify("x") == before == (False, "uses nothing that could use a GPU")
    assert looked.classify("f()").needs_gpu, "it was never defined"
    assert looked.classify("sin(1)").needs_gpu, "nothing was imported"


def test_a_new_process_has_no_past() -> None:
    fresh = session("exec(x)", TORCH, "%load_ext autoreload\n%autoreload 2\nimport helpers")
    fresh.reset()
    assert not fresh.classify("print(1)").needs_gpu
    assert fresh.classify("model") == (True, "uses `model`, which is not known here")


# what it says


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([TORCH], "imports `torch`"),
        ([TORCH, "torch.cuda"], "uses `torch`"),
        ([TORCH, "model(1)"], "uses `model`, which came from `torch`"),
        ([TORCH, "y = model(1)", "y"], "uses `y`, which came from `torch`"),
        ([TORCH, "def f(): return model(1)", "f()"], "uses `f`, which uses `model`"),
        (["def f():\n    import torch", "f()"], "uses `f`, which imports `torch`"),
        (["mystery"], "uses `mystery`, which is not known here"),
        (["!python train.py"], "runs the shell command `python train.py`"),
        (["!" + "python " + "x" * 99], "runs the shell command `python " + "x" * 32 + "…`"),
        (["%frobnicate"], "uses the magic `%frobnicate`, which is not known"),
        (["%run x.py"], "runs other code (`%run`)"),
        (["exec(mystery)"], "uses `mystery`, which is not known here"),
        (["x = 1", "exec(x)"], "uses `exec`"),
        (["exec(x)", "1"], "comes after one that uses `x`, which is not known here"),
        ([TORCH, "model = 1"], "replaces `model`, which came from `torch`: what is dropped may free GPU memory"),
        ([TORCH, "del model"], "deletes `model`, which came from `torch`: that may free GPU memory"),
        (["import os\nos.system('x')"], "reaches for `system`"),
        (["import sys\nsys.modules"], "uses `sys.modules`"),
        (["%%gpu\n1"], "says %%gpu"),
        (["%%cpu\nmystery"], "says %%cpu"),
        (["x = ("], "can't run: it is no Python"),
        (["1 + 1"], "uses nothing that could use a GPU"),
    ],
)
def test_a_verdict_says_why(cells: list[str], why: str) -> None:
    verdict = session(*cells[:-1]).classify(cells[-1])
    if why.startswith("comes after"):
        assert verdict.why.startswith("comes after")
    else:
        assert verdict.why == why


@pytest.mark.parametrize(
    ("metadata", "needs_gpu"),
    [
        ({"tags": ["gpu"]}, True),
        ({"tags": ["plot", "cpu"]}, False),
        ({"tags": ["cpu", "gpu"]}, True),
        ({"tags": []}, True),
        ({"tags": None}, True),
        ({"tags": "cpu"}, True),
        ({"tags": [["cpu"], 1]}, True),
        ({"cellId": "x", "deletedCells": []}, True),
        (None, True),
        ([], True),
    ],
)
def test_tags_decide_where_the_client_sends_them(metadata: Any, needs_gpu: bool) -> None:
    assert session(TORCH).classify("model", metadata).needs_gpu is needs_gpu


def test_a_tag_can_ask_for_a_gpu() -> None:
    assert session().classify("1 + 1", {"tags": ["gpu"]}) == (True, "has the tag gpu")


def test_the_first_line_wins_over_tags() -> None:
    assert not session().classify("%%cpu\nmystery", {"tags": ["gpu"]}).needs_gpu


def test_what_a_cell_that_says_cpu_does_is_learned_all_the_same() -> None:
    assert session("%%cpu\nimport torch\nx = torch.zeros(1)").classify("x").needs_gpu


def test_a_cell_for_workers_needs_no_gpu_here_and_what_it_brings_home_may() -> None:
    assert session(TORCH).classify("%%distributed -w 2\nmodel(1)") == (False, "runs on workers of its own")
    assert session("%%distributed -w 2\nimport torch\nx = torch.zeros(1)").classify("x").needs_gpu
    assert not session("%%distributed -w 2\nx = 1").classify("y = 2").needs_gpu
    assert not session().classify("%burst ls").needs_gpu
    assert session().classify("%burst result mine").needs_gpu


@pytest.mark.parametrize("line", ["%burst ls", "%burst attach mine", "burst logs mine", "%gpu"])
def test_a_look_at_workers_needs_no_gpu_here_whatever_came_before(line: str) -> None:
    after_anything = session("exec(unknown)")
    assert after_anything.classify("x = 1").needs_gpu
    assert not after_anything.classify(line).needs_gpu


# what is remembered


def test_taint_stays_as_long_as_a_statement_may_not_have_run() -> None:
    assert session(TORCH, "x = model", "x = 1").classify("x").needs_gpu


def test_taint_goes_once_the_kernel_has_said_that_the_cell_ran() -> None:
    assert not session(TORCH, "x = model", "x = 1", told=True).classify("x").needs_gpu


@pytest.mark.parametrize(
    "cell",
    listed(
        """
if a:|    x = 1; for x in []:|    pass; while a:|    x = 1; try:|    x = 1|except E:|    pass; a and (x := 1); x += 1
def f():|    global x|    x = 1; with a:|    x = 1; class A:|    x = 1; [x for x in a]; x = 1|x = model; x = []|x.append(model)
%timeit x = 1; %%timeit|x = 1; exec('x = 1'); match a:|    case x: pass; x = y; import helpers as x; x: int; del x; x[0] = 1
try:|    pass|except E as x:|    pass
"""
    ),
)
def test_taint_stays_where_the_name_may_hold_what_it_held(cell: str) -> None:
    assert session(TORCH, "a = []\ny = model\nx = model", cell, told=True).classify("x").needs_gpu


def test_a_later_cell_that_was_sent_meanwhile_is_not_forgotten() -> None:
    late = session(TORCH, "x = model")
    ticket = late.ran("x = 1")
    late.ran("x = model")
    late.succeeded(ticket)
    assert late.classify("x").needs_gpu


def test_what_shared_the_old_value_keeps_its_taint() -> None:
    assert session(TORCH, "x = []\ny = x", "x.append(model)", "x = 1", told=True).classify("y").needs_gpu


def test_a_function_is_judged_by_what_its_names_hold_now() -> None:
    now = session(TORCH, "def f(): return x", "x = model", told=True)
    assert now.classify("f()").needs_gpu
    now.succeeded(now.ran("x = 1"))
    assert not now.classify("f()").needs_gpu


def test_a_ticket_of_the_process_before_changes_nothing() -> None:
    old = session()
    ticket = old.ran("x = 1")
    old.reset()
    old.ran(TORCH + "\nx = model")
    old.succeeded(ticket)
    assert old.classify("x").needs_gpu


def test_what_was_too_deep_to_read_is_not_trusted() -> None:
    assert session("x = " + "not " * 5000 + "1").classify("print(1)").needs_gpu


def test_a_cell_that_cannot_run_teaches_nothing() -> None:
    assert session("x = (", "prnt 'x'").classify("x = 1\nx") == (False, "uses nothing that could use a GPU")


# kernels


def test_a_newer_python_may_run_what_this_one_cannot_read() -> None:
    newer = (sys.version_info[0], sys.version_info[1] + 1)
    assert Session(newer).classify("x = (").needs_gpu
    assert not Session(sys.version_info[:2]).classify("x = (").needs_gpu


def test_cells_of_another_language_wait_unless_they_say_otherwise() -> None:
    other = Unknown()
    other.succeeded(other.ran("echo hi"))
    assert other.classify("echo hi").needs_gpu
    assert not other.classify("echo hi", {"tags": ["cpu"]}).needs_gpu
    assert not other.classify("%%cpu\necho hi").needs_gpu


# any cell


WORDS = st.sampled_from(
    ["x", "model", "def ", "f", "(", ")", ":", "\n", "    ", "%", "%%time", "!ls", "?", "'", '"', "'''", "#", "\\", "lambda ", "import ",
     "torch", "=", " = ", "[", "]", "{", "}", ",", ".", "for ", " in ", "class ", "@", "await ", "*", "exec(", "globals()", "_", "1", "\t",
     "\r\n", "\x00", "é", "\u2028", "if ", "else:"]
)  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(st.one_of(st.text(), st.lists(WORDS).map("".join)))
def test_no_text_whatsoever_raises(code: str) -> None:
    any_cell = session(TORCH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(any_cell.classify(code), Verdict)
        any_cell.succeeded(any_cell.ran(code))
        assert isinstance(any_cell.classify(code), Verdict)
        Unknown().classify(code)


USES = listed(
    """
NAME; NAME.x; NAME(1); NAME[0]; f'{NAME}'; print(NAME); [NAME]; y = NAME; NAME = 1; del NAME; NAME += 1; NAME.x = 1; NAME[0] = 1
for i in NAME: pass; for NAME in y: pass; if NAME: pass; while NAME: break; with NAME: pass; with open('x') as NAME: pass; assert NAME
[i for i in NAME]; (i for i in [] if NAME); {1: NAME}; lambda p=NAME: p; def g(p=NAME): pass; @NAME|def g(): pass; class K(NAME): pass
class K:|    a = NAME; import json as NAME; def NAME(): pass; try:|    NAME|except Exception: pass; y = 1 if NAME else 2; y = z = NAME
not NAME; NAME and 1; -NAME; 1 < NAME; y: NAME = 1; (y := NAME); y[NAME]; y[NAME:1]; *NAME, y = [1, 2]; raise NAME; await NAME
dict(k=NAME); print(*NAME); getattr(NAME, 'x'); len(NAME); NAME is None; eval('NAME'); exec('NAME'); globals()['NAME']; %time NAME
%%time|NAME; NAME?; ?NAME; def g(p: NAME): pass; sorted([1], key=lambda q: NAME); (lambda: NAME)(); map(lambda q: NAME, [1])
match NAME:|    case 1: pass; match 1:|    case NAME.x: pass
"""
)
REPLACING = listed("NAME = 1; for NAME in y: pass; with open('x') as NAME: pass; import json as NAME; def NAME(): pass; *NAME, y = [1, 2]")
TAINTS = listed(
    """
NAME = model; NAME = [model]; NAME = []|NAME.append(model); NAME = {}|NAME['k'] = model; def make(): return model|NAME = make
import torch as NAME; NAME = model if 1 else 2; class NAME:|    m = model; NAME = lambda: model; from torch import nn as NAME
for NAME in model: pass; with model as NAME: pass; y, NAME = 1, model; NAME = (i for i in model); global NAME|NAME = model
"""
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TAINTS), st.sampled_from(USES), st.sampled_from(["x", "data", "np", "print", "df"]), st.integers(0, 2))
def test_no_cell_that_uses_a_tainted_name_is_a_cpu_cell(taint: str, use: str, name: str, between: int) -> None:
    if "globals()" in use and taint.startswith("global"):
        return
    tainted = session("y = {}", "z = 1", TORCH, taint.replace("NAME", name), *["other = 1"] * between)
    if ("def " in taint or "lambda" in taint) and use in REPLACING:
        return  # putting something else in the place of a function frees nothing
    assert tainted.classify(use.replace("NAME", name)).needs_gpu


def test_thousands_of_lines_are_read_in_one_go() -> None:
    long = session("import numpy as np")
    cell = "\n".join(f"x{n} = np.sin({n}) + x{n - 1 if n else 0}" for n in range(4_000)).replace("+ x0\n", "+ 1\n", 1)
    assert not long.classify(cell).needs_gpu
    long.ran(cell)
    assert not long.classify("x3999").needs_gpu
    assert long.classify("y3999").needs_gpu
