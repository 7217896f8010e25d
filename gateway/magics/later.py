"""Magics whose rooms are imported when somebody calls them or asks about them: most kernels never do, and each start would pay for it.

It must never differ from the magic itself in what people see.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, Callable, Optional


def install(shell: Any, kind: str, name: str, module: str, doc: str) -> None:
    """``%name`` ("line") or ``%%name`` ("cell"), which ``install(shell)`` of ``module`` registers in the end. ``doc``: one line."""

    def magic(*args: str) -> Any:
        __tracebackhide__ = True
        return _real(shell, kind, name, module)(*args)

    def getdoc() -> Optional[str]:
        return inspect.getdoc(_real(shell, kind, name, module))

    magic.__name__, magic.__doc__ = name, doc
    magic.getdoc = getdoc  # type: ignore[attr-defined]  # what `%name?` shows
    shell.register_magic_function(magic, kind, name)


def uninstall(shell: Any, kind: str, name: str) -> None:
    shell.magics_manager.magics[kind].pop(name, None)


def _real(shell: Any, kind: str, name: str, module: str) -> Callable[..., Any]:
    import_module(module).install(shell)
    magic: Callable[..., Any] = shell.magics_manager.magics[kind][name]
    return magic
