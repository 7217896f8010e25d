"""Where Python looks names up: which ones a function, a class body or a comprehension has for itself.

Syntax alone; it must never judge what a name holds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Optional, Union

from .names import Value

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]


class Frame:
    """One scope around the code at hand: its kind (function, class, comprehension), its names, those it declares global."""

    __slots__ = ("globals", "kind", "names")

    def __init__(self, kind: str, names: Optional[dict[str, Value]] = None, declared: Iterable[str] = ()) -> None:
        self.kind, self.names, self.globals = kind, names or {}, frozenset(declared)


def bound_in(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """``(bound, global)``: the names that code of one scope binds for itself, and those that it declares global."""
    bound: set[str] = set()
    declared: set[str] = set()
    outer: set[str] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound.update((alias.asname or alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.Global):
            declared.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            bound.update(n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        elif not isinstance(node, ast.Lambda):
            for field in ("name", "rest"):  # of except ... as name, and of patterns
                if isinstance(getattr(node, field, None), str):
                    bound.add(getattr(node, field))
            stack.extend(ast.iter_child_nodes(node))
    return bound - declared - outer, declared


def parameters(node: Function) -> set[str]:
    """The names that a function has from its caller, its type parameters among them."""
    args = node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {arg.arg for arg in every if arg is not None} | type_parameters(node)


def type_parameters(node: ast.AST) -> set[str]:
    return {parameter.name for parameter in getattr(node, "type_params", ())}


def annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    args = node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    notes = [arg.annotation for arg in every if arg is not None] + [node.returns]
    return [annotation(note) for note in notes if note is not None]


def annotation(node: ast.expr) -> ast.expr:
    """An annotation as an expression, also where it stands in quotes (some libraries evaluate those)."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            return node
    return node


def root_of(node: ast.expr) -> Optional[str]:
    """``a`` of ``a.b[c].d(e)``."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
