"""IPython extension: what a user of an elastic kernel types. ``%load_ext gateway.magics``; the kernelspec loads it by itself.

Imported in users' kernels, so it must never fail to import, never need more than the standard library and what runs the kernel,
and never do anything before it is loaded.
"""

from __future__ import annotations

from typing import Any

_LATER = (
    ("line", "gpu", "gateway.magics.gpu", "Say which GPU this kernel holds or waits for, and for how long."),
    ("cell", "distributed", "gateway.magics.distributed", "Run this cell on many workers: ``%%distributed -w 4``."),
    ("line", "burst", "gateway.magics.distributed", "What becomes of cells that run on many workers."),
)


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython: adds ``%gpu``, ``%%gpu``, ``%%cpu``, ``%%distributed`` and ``%burst`` to ``shell``."""
    from . import gate_line, later, output

    output.install(shell)
    gate_line.install(shell)
    for magic in _LATER:
        later.install(shell, *magic)


def unload_ipython_extension(shell: Any) -> None:
    """Called by IPython: takes away again what ``load_ipython_extension`` added."""
    from . import gate_line, later

    for kind, name, *_ in _LATER:
        later.uninstall(shell, kind, name)
    gate_line.uninstall(shell)
