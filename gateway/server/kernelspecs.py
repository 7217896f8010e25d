"""Kernelspecs as they are read: those of an Enterprise Gateway become ours on the way.

It must never change a file, nor offer a kernel that can't run.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from traitlets import default

from ..enterprise.kernelspecs import is_theirs, translate

log = logging.getLogger(__name__)

_told: set[str] = set()  # folders of which the log has spoken


class ElasticKernelSpec(KernelSpec):
    """One that may have been written for an Enterprise Gateway."""

    @classmethod
    def from_resource_dir(cls, resource_dir: str) -> KernelSpec:
        """Raises ``NoSuchKernel`` for one that this gateway has no way to run; the log says why, once."""
        spec: dict[str, Any] = json.loads((Path(resource_dir) / "kernel.json").read_text(encoding="utf-8"))
        if not is_theirs(spec):
            return super().from_resource_dir(resource_dir)
        made = translate(spec)
        if made.told and resource_dir not in _told:
            _told.add(resource_dir)
            what = "isn't offered" if made.spec is None else "is taken for one of ours"
            log.warning("The kernelspec in %s, of an Enterprise Gateway, %s: %s.", resource_dir, what, "; ".join(made.told))
        if made.spec is None:
            raise NoSuchKernel(Path(resource_dir).name)
        return cls(resource_dir=resource_dir, **made.spec)


class ElasticKernelSpecManager(KernelSpecManager):
    """Stock, but for how a kernelspec is read."""

    @default("kernel_spec_class")
    def _spec_class(self) -> type:
        return ElasticKernelSpec
