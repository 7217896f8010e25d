"""Torch tensors, without importing torch: each storage crosses once, shared by all tensors that look into it, and lands on the device
of the side that loads it.

A tensor on the CPU is not copied to be packed. A gradient's history stays where it is. This module must never touch an accelerator
unless a tensor lies there.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any, Optional

from . import restore

WRAPPERS = {  # what only makes sense within one process group or one process, and the attribute that holds what was wrapped
    ("torch.nn.parallel.distributed", "DistributedDataParallel"): "module",
    ("torch.nn.parallel.data_parallel", "DataParallel"): "module",
    ("torch._dynamo.eval_frame", "OptimizedModule"): "_orig_mod",
}
ACCELERATORS = ("cuda", "xpu", "hip", "mps")


def torch() -> Any:
    return sys.modules.get("torch")


class Storages:
    """The storages that one pickler has met."""

    def __init__(self) -> None:
        self._known: dict[Any, _Storage] = {}
        self.accelerated = False

    def of(self, tensor: Any) -> "_Storage":
        storage = tensor.untyped_storage()
        key = (str(tensor.device), storage.data_ptr(), storage.nbytes()) if storage.nbytes() else id(storage)
        if key not in self._known:
            self._known[key] = _Storage(storage)
            self.accelerated |= storage.device.type in ACCELERATORS
        return self._known[key]


class _Storage:
    """Pickled in place of a storage, so that the pickler's memo shares it."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def __reduce__(self) -> Any:
        kind = self._storage.device.type
        here = self._storage if kind == "cpu" else self._storage.cpu()
        return storage, (pickle.PickleBuffer(_bytes(here)) if here.nbytes() else b"", kind)


def _bytes(storage: Any) -> Any:
    return torch().empty(0, dtype=torch().uint8).set_(storage).numpy()


def reduce(obj: Any, storages: Storages) -> Any:
    """Like ``reducer_override``, for what torch brings."""
    framework = torch()
    if framework is None:
        return NotImplemented
    kind = type(obj)
    if kind is framework.Tensor or kind is framework.nn.Parameter:
        return _tensor(obj, storages)
    if kind is framework.device:
        return device, (obj.type, obj.index)
    inner = WRAPPERS.get((kind.__module__, kind.__name__))
    if inner is not None:
        return restore.same, (getattr(obj, inner),)
    return NotImplemented


def _tensor(obj: Any, storages: Storages) -> Any:
    framework = torch()
    plain = obj.layout is framework.strided and not obj.is_quantized and obj.device.type in ("cpu", *ACCELERATORS)
    if not plain or obj.is_neg() or obj.is_conj():
        return NotImplemented
    flat = obj.detach()
    view = (storages.of(flat), flat.dtype, flat.storage_offset(), tuple(flat.shape), flat.stride())
    return tensor, (*view, obj.requires_grad, isinstance(obj, framework.nn.Parameter)), vars(obj) or None, None, None, attributes


def storage(data: Any, kind: str) -> Any:
    """Loads a storage; ``data`` is adopted without a copy where it stays on the CPU."""
    import torch

    if not len(data):
        return torch.UntypedStorage(0)
    here = torch.frombuffer(data, dtype=torch.uint8)
    if kind == "cpu":
        return here.untyped_storage()
    there = here.to(restore.here().device())
    restore.here().moved.append((there, here))
    return there.untyped_storage()


def tensor(where: Any, dtype: Any, offset: int, shape: tuple, stride: tuple, requires_grad: bool, parameter: bool) -> Any:
    import torch

    loaded = torch.empty(0, dtype=dtype, device=where.device).set_(where, offset, shape, stride)
    if parameter:
        return torch.nn.Parameter(loaded, requires_grad=requires_grad)
    return loaded.requires_grad_(requires_grad)


def attributes(loaded: Any, state: dict[str, Any]) -> None:
    vars(loaded).update(state)


def device(kind: str, index: Optional[int]) -> Any:
    import torch

    if kind in ACCELERATORS:
        return torch.device(restore.here().device())
    return torch.device(kind, index) if index is not None else torch.device(kind)
