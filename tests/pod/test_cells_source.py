"""IPython's own syntax is read as IPython reads it, or the cell counts as using a GPU."""

from __future__ import annotations

import ast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from gateway.pod.cells.source import read, shell_method

LINES = st.sampled_from(
    ["x = 1", "if x:", "    y = 2", "    !ls", "!ls", "!echo it's", "%time f(1)", "%pwd", "x = !ls", "x = %pwd", "df?", "?df",
     "f(", ")", "'''", '"""',
     "print('a", "# it's", "d = {", "}", "x = [1,", "2]", "\\", "a = 1 + \\", "%timeit \\", "%%time", "%%capture out", "%%bash",
     "python x.py", "",
     "    ", "\t", "s = 'it''s'", "r'\\'", "f'{x!r}'", "x % y", "(x", "% y)", "; x", "/f x", ",f a", ">>> x", "... y",
     "In [1]: x", "  ...: y", "x?",
     "x.y??", "foo bar", "pass;", "@f", "def g():", "    return 1", "print 'x'", "x =!ls", "d['k'] = !ls", "a, b = %pwd", "%gpu",
     "%%gpu", "!!ls", "???",
     "for i in x: !ls", "lambda: 0", "\x0c", "x\r", "é = 1", "\u2028!ls"]
)  # fmt: skip


CODE = st.lists(LINES, min_size=1, max_size=6).map("\n".join).filter(lambda code: not code.strip().startswith("%%"))


@settings(max_examples=400, deadline=None)
@given(CODE)
@example("x = (\n!ls\n)")
@example("'''\n!ls\n'''\n!ls")
@example("if 1:\n    %time x")
def test_what_is_taken_for_no_python_is_none_to_ipython_either(code: str) -> None:
    source = read(code)
    if source.tree is not None or source.problem is not None:
        return
    try:
        text = TransformerManager().transform_cell(code)
        runs = ast.parse(text).body
    except (SyntaxError, ValueError, RuntimeError):
        return
    assert not runs, f"IPython runs {text!r}"


@settings(max_examples=400, deadline=None)
@given(CODE)
@example("x = '''\n%pwd\n'''")
def test_a_line_that_ipython_changes_is_noticed(code: str) -> None:
    try:
        text = TransformerManager().transform_cell(code)
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RuntimeError):
        return
    calls = sum(isinstance(node, ast.Name) and node.id == "get_ipython" for node in ast.walk(tree))
    source = read(code)
    if calls and source.problem is None:
        assert source.tree is not None
        assert ast.dump(source.tree) != ast.dump(tree)
        helps = code.count("?")
        magics = sum(code.count(word) for word in ("%time", "%%", "%timeit"))  # these leave only what they wrap
        assert len(source.specials) + helps + magics >= calls, text


def test_python_that_parses_is_left_as_it_is() -> None:
    code = "s = '''\n!rm x\n%run y\nz?\n'''\nx = (a\n% b)"
    source = read(code)
    assert source.tree is not None
    assert ast.dump(source.tree) == ast.dump(ast.parse(code))
    assert not source.specials


@pytest.mark.parametrize(
    ("code", "python"),
    [
        ("%time f(x)", "f(x)"),
        ("%timeit -n 10 -r3 f(x)", "f(x)"),
        ("%prun -s cumulative f(x)", "f(x)"),
        ("t = %timeit -o f(x)", "t = f(x)"),
        ("if a:\n    %time b = f(x)", "if a:\n    b = f(x)"),
        ("%%time\nf(x)", "f(x)"),
        ("%%timeit s = 1\nf(s)", "s = 1\nf(s)"),
        ("%%time\n%%prun\nf(x)", "f(x)"),
        ("%%gpu\n%%time\nf(x)", "f(x)"),
        ("    a = 1\n    b = 2", "a = 1\nb = 2"),
        ("df.head?", "df.head"),
        ("?df.head", "df.head"),
        ("df.head??", "df.head"),
    ],
)
def test_a_magic_that_wraps_code_is_that_code(code: str, python: str) -> None:
    source = read(code)
    assert source.tree is not None
    assert ast.dump(source.tree) == ast.dump(ast.parse(python))


@pytest.mark.parametrize(
    ("code", "demand"), [("%%gpu\nx", True), ("%%cpu\nx", False), ("\n\n%%cpu\nx", False), ("%%time\n%%gpu\nx", True), ("x", None)]
)
def test_the_first_line_may_say_what_the_cell_needs(code: str, demand: bool | None) -> None:
    assert read(code).demand is demand


def test_of_two_such_lines_the_first_counts() -> None:
    assert read("%%cpu\n%%gpu\nx").demand is False


def test_line_magics_are_judged_where_they_stand() -> None:
    source = read("x = 1\n!ls\n%frobnicate\ny = !python z.py")
    assert [special.why is None for special in source.specials.values()] == [True, False, False]


def test_a_bound_name_is_no_magic() -> None:
    assert read("ls", lambda name: False).specials
    assert not read("ls", lambda name: True).specials


def test_a_mistyped_word_is_a_problem_but_nothing_to_fear() -> None:
    source = read("prnt 'x'")
    assert source.problem
    assert source.typo


def test_assignments_to_names_of_magics_are_assignments() -> None:
    for code in ("time = 5", "ls.x", "env['a']", "cd: int = 3", "run, ls = 1, 2"):
        assert not read(code).specials, code


@pytest.mark.parametrize(
    ("method", "words", "safe"),
    [
        ("run_line_magic", ["matplotlib", "inline"], True),
        ("system", ["ls"], True),
        ("getoutput", ["python x.py"], False),
        ("magic", ["%run x"], False),
    ],
)
def test_calls_of_the_shell_are_judged_like_the_magics_they_are(method: str, words: list[str], safe: bool) -> None:
    special = shell_method(method, words)
    assert special is not None
    assert (special.why is None) is safe


def test_other_calls_of_the_shell_are_not_understood() -> None:
    assert shell_method("run_cell", ["x"]) is None
