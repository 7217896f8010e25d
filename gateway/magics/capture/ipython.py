"""What IPython adds to Python in a cell: turned into Python here, and refused here where a rank couldn't run it.

Works without IPython, for plain Python. It must never run what it reads.
"""

from __future__ import annotations

import ast
import re
import sys
from typing import Any

from ...protocol.transfer.source import Source

SHELL = "get_ipython"


def shell() -> Any:
    """The kernel's own, or None where the namespace isn't a notebook's."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module else None


def to_python(cell: str, of: Any) -> str:
    """``of`` is a shell or None."""
    return of.transform_cell(cell) if of is not None else cell


def flags(of: Any) -> int:
    """Of ``from __future__ import`` in earlier cells."""
    import __future__

    known = 0
    for name in __future__.all_feature_names:
        known |= getattr(__future__, name).compiler_flag
    return getattr(getattr(of, "compile", None), "flags", 0) & known


def unknown_magics(tree: ast.Module, of: Any) -> list[str]:
    """The magics in a cell that ranks can't have, because an extension of this kernel or the notebook itself made them."""
    found = []
    for node in ast.walk(tree):
        kind = _magic_call(node)
        if kind:
            name = node.args[0].value  # type: ignore[attr-defined]
            if not _built_in(name, kind, of):
                found.append(("%" if kind == "line" else "%%") + name)
    return list(dict.fromkeys(found))


def names_in_magics(tree: ast.Module) -> list[str]:
    """What magics and ``!`` lines read, which the compiled code doesn't tell: it is text there. Rather too many than too few."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(f"{SHELL}()."):
            text = " ".join(part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str))
            if not _magic_call(node):
                text = " ".join(part for pair in re.findall(r"\{([^{}]*)\}|\$(\w+)", text) for part in pair)
            found += re.findall(r"[^\W\d]\w*", text)
    return found


def _magic_call(node: ast.AST) -> str:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)):
        return ""
    if not (isinstance(node.func.value.func, ast.Name) and node.func.value.func.id == SHELL and node.args):
        return ""
    kind = {"run_line_magic": "line", "run_cell_magic": "cell"}.get(node.func.attr, "")
    return kind if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str) else ""


def _built_in(name: str, kind: str, of: Any) -> bool:
    if of is None:
        return False
    function = of.magics_manager.magics[kind].get(name)
    owner = type(function.__self__) if hasattr(function, "__self__") else function
    return str(getattr(owner, "__module__", "")).startswith("IPython.")


def show_as_cell(source: Source, number: Any, of: Any) -> None:
    """Lets this kernel's tracebacks call the code ``Cell In[number]``."""
    known = getattr(getattr(of, "compile", None), "_filename_map", None)
    if known is not None and number is not None:
        known[source.name] = number
