"""A cell's text, compiled alike on both ends: the lines count as the notebook counts them, and tracebacks find the text.

It must never change a line of what the user wrote.
"""

from __future__ import annotations

import ast
import linecache
import types
from typing import NamedTuple, Optional


class Source(NamedTuple):
    text: str  # Python, with ``first - 1`` lines before it that belong to the magic
    shown: str  # what the user wrote, line by line as long
    name: str  # what tracebacks call it
    flags: int  # of ``from __future__ import`` in earlier cells

    def to_json(self) -> dict[str, object]:
        return self._asdict()

    @classmethod
    def from_json(cls, fields: dict[str, object]) -> "Source":
        return cls(str(fields["text"]), str(fields["shown"]), str(fields["name"]), int(str(fields["flags"])))

    def parse(self) -> ast.Module:
        """Raises ``SyntaxError`` with the notebook's line."""
        remember(self.name, self.shown)
        tree = compile(self.text, self.name, "exec", self.flags | ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        self._compile(tree, "exec")  # what only the compiler refuses, such as a return
        return tree

    def compile(self) -> tuple[types.CodeType, Optional[types.CodeType]]:
        """``(the statements, the last expression whose value is shown)``."""
        tree = self.parse()
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not self._silent(tree.body[-1]):
            last = self._compile(ast.Expression(tree.body.pop().value), "eval")  # type: ignore[attr-defined]
        return self._compile(tree, "exec"), last

    def _silent(self, last: ast.Expr) -> bool:
        """Whether a semicolon ends the cell, as notebooks have it."""
        rest = self.text.splitlines()[(last.end_lineno or 1) - 1 :]
        rest[0] = rest[0].encode()[last.end_col_offset or 0 :].decode()
        return rest[0].split("#")[0].strip() == ";"

    def _compile(self, tree: ast.AST, mode: str) -> types.CodeType:
        return compile(tree, self.name, mode, self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def remember(name: str, text: str) -> None:
    """Lets tracebacks find ``text``. None as the time keeps ``linecache.checkcache`` from looking for a file."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def texts(files: set[str]) -> dict[str, str]:
    """The texts of those ``files`` that only this process knows: cells of the notebook."""
    found = {}
    for name in sorted(files):
        entry = linecache.cache.get(name)
        if entry and len(entry) == 4 and entry[1] is None:
            found[name] = "".join(entry[2])
    return found
