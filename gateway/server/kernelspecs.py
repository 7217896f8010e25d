"""Kernelspecs as they are read: those of an Enterprise Gateway become ours on the way.

It must never change a file, nor offer a kernel that can't run, nor fail for one that can't be read.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from traitlets import TraitError, default

from ..enterprise.kernelspecs import is_theirs, translate

log = logging.getLogger(__name__)

_told: set[tuple[str, str]] = set()  # folders, and what the log has said of them


class ElasticKernelSpec(KernelSpec):
    """One that may have been written for an Enterprise Gateway."""

    @classmethod
    def from_resource_dir(cls, resource_dir: str) -> KernelSpec:
        """Raises ``NoSuchKernel`` for one that this gateway has no way to run, or can't read; the log says why, once."""
        try:
            spec: dict[str, Any] = json.loads((Path(resource_dir) / "kernel.json").read_text(encoding="utf-8"))
            if not is_theirs(spec):
                return cls(resource_dir=resource_dir, **spec)
            made = translate(spec)
            if made.told:
                what = "isn't offered" if made.spec is None else "is taken for one of ours"
                _tell(resource_dir, f"of an Enterprise Gateway, {what}: {'; '.join(made.told)}")
            if made.spec is not None:
                return cls(resource_dir=resource_dir, **made.spec)
        except (OSError, ValueError, AttributeError, TypeError, TraitError) as exc:
            _tell(resource_dir, f"can't be read, and isn't offered: {exc}")
        raise NoSuchKernel(Path(resource_dir).name)


def _tell(folder: str, what: str) -> None:
    if (folder, what) not in _told:
        _told.add((folder, what))
        log.warning("The kernelspec in %s %s.", folder, what)


class ElasticKernelSpecManager(KernelSpecManager):
    """Stock, but for how a kernelspec is read."""

    @default("kernel_spec_class")
    def _spec_class(self) -> type:
        return ElasticKernelSpec
