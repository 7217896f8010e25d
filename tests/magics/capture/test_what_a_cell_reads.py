"""Which names a cell reads, by its compiled code: held against what Python itself asks its namespace for."""

from __future__ import annotations

import ast
import builtins

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.magics.capture.analyse import names

AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def reads(source: str) -> set[str]:
    return {name for name in names(ast.parse(source), AWAIT).reads if not hasattr(builtins, name)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x", "x"),
        ("x += 1", "x"),
        ("x = y", "y"),
        ("x = 1\nx", ""),
        ("x = x", "x"),
        ("if c: x = 1\nx", "c x"),
        ("for i in a: i", "a i"),
        ("del x", "x"),
        ("a.b.c = 1", "a"),
        ("a[i] = v", "a i v"),
        ("(lambda: x)()", "x"),
        ("[x for y in z if w]", "x z w"),
        ("def f():\n    return x", "x"),
        ("def f(x):\n    return x", ""),
        ("def f():\n    global c\n    c += 1", "c"),
        ("def fact(i): return i and fact(i - 1)", ""),
        ("class A(B):\n    z = w\n    def m(self): return v", "B w v"),
        ("@deco\ndef f(): pass", "deco"),
        ("def f(a=b, *, c: d = e) -> g: pass", "b d e g"),
        ("from math import *\nfloor(x)", "floor x"),
        ("import os.path\nos", ""),
        ("import a.b as c\na", "a"),
        ("with open(p) as f: f", "p f"),
        ("await x", "x"),
        ("async for i in ag(): i", "ag i"),
        ("x: int = y", "y"),
        ("x: int\nx", "x"),
        ("f'{x!r:{w}}'", "x w"),
        ("try:\n    x\nexcept E as e:\n    e", "x E e"),
        ("a, (b, *c) = d\na, b, c", "d"),
        ("(y := x)\ny", "x y"),
        ("match s:\n    case P(a=v): v", "s P v"),
        ("nonlocals = 1\ndef o():\n    n = 1\n    def i():\n        nonlocal n\n        n += x\n    return i", "x"),
        ("exec('x')", ""),
        ("", ""),
        ("# only words", ""),
    ],
)
def test_what_a_cell_reads(source, expected):
    """``i`` after a loop, ``f`` after ``with``: too many is harmless, the notebook need not have them."""
    assert reads(source) == set(expected.split())


NAMES = st.sampled_from("abcdef")
EXPRESSIONS = st.one_of(
    NAMES,
    st.integers(0, 9).map(str),
    st.tuples(NAMES, NAMES).map(lambda p: f"({p[0]}, {p[1]})"),
    st.tuples(NAMES, NAMES).map(lambda p: f"[{p[0]} for {p[1]} in (1,)]"),
    st.tuples(NAMES, NAMES).map(lambda p: f"(lambda {p[0]}=0: {p[1]})()"),
)
STATEMENTS = st.recursive(
    st.one_of(
        st.tuples(NAMES, EXPRESSIONS).map(lambda p: [f"{p[0]} = {p[1]}"]),
        EXPRESSIONS.map(lambda e: [e]),
        NAMES.map(lambda n: [f"del {n}"]),
        st.tuples(NAMES, EXPRESSIONS).map(lambda p: [f"def {p[0]}(): return {p[1]}", f"{p[0]}()"]),
        st.tuples(NAMES, EXPRESSIONS).map(lambda p: [f"class {p[0]}: k = {p[1]}"]),
        NAMES.map(lambda n: [f"def g():\n global {n}\n {n} = 1", "g()"]),
    ),
    lambda inner: st.tuples(EXPRESSIONS, st.lists(inner, min_size=1, max_size=3)).map(
        lambda p: [f"if {p[0]}:", *("    " + line for lines in p[1] for part in lines for line in part.splitlines())]
    ),
    max_leaves=6,
)


class Asked(dict):
    """A namespace that remembers what it was asked for before it was given it."""

    def __init__(self, values: dict[str, object]) -> None:
        super().__init__(values)
        self.first, self.own = set(values), set()
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> object:
        value = super().__getitem__(name)
        if name not in self.own:
            self.asked.add(name)
        return value

    def __setitem__(self, name: str, value: object) -> None:
        self.own.add(name)
        super().__setitem__(name, value)


@given(st.lists(STATEMENTS, max_size=6).map(lambda parts: "\n".join(line for part in parts for line in part)))
def test_whatever_a_cell_asks_its_namespace_for_was_foreseen(source):
    namespace = Asked(dict.fromkeys("abcdef", 7))
    try:
        exec(compile(source, "<cell>", "exec"), {**namespace, "__builtins__": {}}, namespace)
    except (NameError, TypeError):
        pass
    assert namespace.asked & set("abcdef") <= set(names(ast.parse(source), AWAIT).reads)
