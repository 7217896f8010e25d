"""IPython extension: what a user of an elastic kernel types. ``%load_ext gateway.magics``; the kernelspec loads it by itself.

Imported in users' kernels, so it must never fail to import, never need more than the standard library and what runs the kernel,
and never do anything before it is loaded.
"""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython: adds ``%gpu``, ``%%gpu``, ``%%cpu``, ``%%distributed`` and ``%burst`` to ``shell``."""
    from . import distributed, gate_line, gpu, output

    output.install(shell)
    gate_line.install(shell)
    gpu.install(shell)
    distributed.install(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by IPython: takes away again what ``load_ipython_extension`` added."""
    from . import distributed, gate_line, gpu

    distributed.uninstall(shell)
    gpu.uninstall(shell)
    gate_line.uninstall(shell)
