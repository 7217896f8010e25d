"""Which names a cell reads, told by the code that Python compiles it to. Source in, names out; it must never run any of it.

What a cell reads by ``exec``, ``eval`` or ``globals()[…]`` can't be seen here. What it assigns is not asked here at all: the rank looks.
"""

from __future__ import annotations

import ast
import dis
import types
from typing import NamedTuple

READS = {"LOAD_NAME", "LOAD_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}


class Names(NamedTuple):
    reads: dict[str, None]  # in the order of the cell; names that the cell surely assigns before are left out
    writes: set[str]


def names(tree: ast.Module, flags: int) -> Names:
    """``flags`` as for ``compile``; ``await`` at the top is allowed anyway."""
    reads: dict[str, None] = {}
    writes: set[str] = set()
    sure: set[str] = set()
    for statement in tree.body:
        code = compile(ast.Module([statement], []), "<cell>", "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        read, written = _of_code(code)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not statement.decorator_list:
            sure.add(statement.name)  # its body runs when the name is there
        reads.update((name, None) for name in read if name not in sure)
        writes |= written
        sure |= _surely_assigned(statement)
    return Names(reads, writes)


def _of_code(code: types.CodeType, top: bool = True) -> tuple[dict[str, None], set[str]]:
    """A class body's own names count as read too: too many is harmless, one too few is not."""
    reads: dict[str, None] = {}
    writes: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in READS:
            reads[step.argval] = None
        elif step.opname == "STORE_GLOBAL" or (top and step.opname == "STORE_NAME"):
            writes.add(step.argval)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            inner, inner_writes = _of_code(part, top=False)
            reads.update(inner)
            writes |= inner_writes
    return reads, writes


def _surely_assigned(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    else:
        return set()
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
