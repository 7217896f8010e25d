"""``%%gpu`` and ``%%cpu``: a first line that the gate reads on the cell's way in, and that means nothing to the kernel itself.

So it is taken off before IPython looks at the cell: what is left is an ordinary cell, with its own display, numbering, errors and
stop-on-error. This module must never run the cell by itself.
"""

from __future__ import annotations

import re
from typing import Any

NAMES = ("gpu", "cpu")
LINE = re.compile(r"%%(?:gpu|cpu)[ \t]*\r?\n?$")


def strip_gate_line(lines: list[str]) -> list[str]:
    """The cell without ``%%gpu`` or ``%%cpu``. A blank line takes its place, so that tracebacks count as the notebook does."""
    if not lines or not LINE.match(lines[0]):
        return lines
    body = lines[1:]
    for at, line in enumerate(body):
        if line.startswith("%%"):  # stacked, as in %%gpu and then %%time: IPython wants to see it first
            return strip_gate_line(body[at:])
        if not line.isspace():
            break
    return ["\n", *body]


def explain(line: str, cell: str = "") -> None:
    """The first line of a cell, alone: ``%%gpu`` says that the cell needs a GPU, ``%%cpu`` that it doesn't, whatever it looks like.

    The cell runs as ever. A cell that says neither waits for a GPU if it could touch one.
    """
    from IPython.core.error import UsageError

    raise UsageError(f"%%gpu and %%cpu stand alone on the first line of a cell; {line.strip()!r} belongs on the next one.")


def install(shell: Any) -> None:
    uninstall(shell)
    shell.input_transformers_cleanup.append(strip_gate_line)
    for name in NAMES:
        shell.register_magic_function(explain, "cell", name)  # for %%gpu? and for the completer


def uninstall(shell: Any) -> None:
    transformers = shell.input_transformers_cleanup
    transformers[:] = [known for known in transformers if getattr(known, "__name__", "") != strip_gate_line.__name__]
    for name in NAMES:
        shell.magics_manager.magics["cell"].pop(name, None)
