"""``get_ipython()`` in a rank. ``!`` lines run by themselves; magics need an IPython in the rank's image, and say so.

It must never start IPython for a cell that doesn't ask for it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from typing import Any, Callable

from ...protocol.errors import ElasticError

Show = Callable[[str, "dict[str, Any]"], None]  # type and content of a message for the notebook

_IPYTHONS = re.compile(r"^\s*(?:[\w, ]+=\s*)?[%!]|^\s*\?|\?\s*$", re.MULTILINE)  # what lines have that are IPython's alone
_VARIABLE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|\$(\w+)")


def in_python(text: str) -> str:
    """A cell that no notebook has turned into Python. Raises ``ElasticError`` where only an IPython could read it, and there is none."""
    try:
        compile(text, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        return text
    except (SyntaxError, ValueError):
        pass
    if not _IPYTHONS.search(text):
        return text  # it is just wrong, and running it will say where
    if importlib.util.find_spec("IPython") is None:
        raise ElasticError(
            "The cell has lines that only IPython reads (%, ! or ?), and its workers' Python has none. Install IPython there, or write "
            "the cell without them.",
            reason="not_loaded",
        )
    return str(importlib.import_module("IPython.core.inputtransformer2").TransformerManager().transform_cell(text))


class Shell:
    """What IPython's own shell can do, IPython's own shell does, once it is asked for."""

    def __init__(self, namespace: dict[str, Any], show: Show, names: dict[str, Any]) -> None:
        """``names`` gets what this puts into ``namespace``."""
        self._namespace, self._show, self._names = namespace, show, names
        self._real: Any = None
        self._put(get_ipython=self.itself)

    def _put(self, **names: Any) -> None:
        self._namespace.update(names)
        self._names.update(names)

    def itself(self) -> "Shell":
        return self

    def system(self, command: str) -> None:
        """``!command``; what it writes is the rank's output."""
        sys.stdout.flush()
        self._put(_exit_code=subprocess.run(self._expanded(command), shell=True).returncode)

    def getoutput(self, command: str) -> list[str]:
        """``lines = !command``"""
        done = subprocess.run(self._expanded(command), shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._put(_exit_code=done.returncode)
        return done.stdout.splitlines()

    def start(self) -> None:
        """IPython, where the image has it."""
        if self._real is not None or importlib.util.find_spec("IPython") is None:
            return
        before = dict(self._namespace)
        self._real = importlib.import_module("IPython.core.interactiveshell").InteractiveShell.instance(user_ns=self._namespace)
        self._real.enable_gui = lambda gui=None: None  # for `%matplotlib inline`
        self._real.display_pub.publish = self._publish
        self._real.display_pub.clear_output = lambda wait=False: self._show("clear_output", {"wait": wait})
        self._put(**{name: value for name, value in self._namespace.items() if name not in before})
        self._put(get_ipython=self.itself)

    def _publish(self, data: dict[str, Any], metadata: Any = None, *, transient: Any = None, update: bool = False, **_: Any) -> None:
        content = {"data": data, "metadata": metadata or {}, "transient": transient or {}}
        self._show("update_display_data" if update else "display_data", content)

    def __getattr__(self, name: str) -> Any:
        self.start()
        if self._real is None:
            raise RuntimeError("The ranks' image has no IPython, so magics can't run there. Install it, or write the cell without them.")
        return getattr(self._real, name)

    def _expanded(self, command: str) -> str:
        """With ``{expression}`` and ``$name`` of the namespace put in, as IPython does."""

        def value(match: "re.Match[str]") -> str:
            expression, name = match.groups()
            if expression is not None:
                return str(eval(expression, self._namespace))
            if name is not None:
                return str(self._namespace[name]) if name in self._namespace else match.group()
            return match.group()[0]

        return _VARIABLE.sub(value, command)
