"""Aspects of NumPy's arrays, torch's tensors and pandas' frames: bytes compared where they lie, new bytes copied into the old object.

Their packages are known by what is loaded already; this module must never import one.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, NamedTuple, Optional

from .aspect import Aspect, CannotApply
from .compare import baseline


class _Bytes(NamedTuple):
    shape: tuple  # whatever has to be the same besides the bytes
    unchanged: Callable[[], bool]


# NumPy


def _array_shape(obj: Any) -> tuple:
    return obj.shape, obj.dtype, obj.strides, obj.__array_interface__["data"][0]


def _remember_array(obj: Any, watch: Any) -> Any:
    if obj.dtype.hasobject:
        items = obj.ravel().tolist()
        return _Bytes(_array_shape(obj), lambda: all(a is b for a, b in zip(obj.ravel().tolist(), items)))
    contiguous = obj.flags.c_contiguous or obj.flags.f_contiguous
    arena = watch.arena if contiguous else None
    return _Bytes(_array_shape(obj), baseline(arena, obj.__array_interface__["data"][0], obj.nbytes, obj.tobytes))


def _array_changed(obj: Any, memory: _Bytes) -> bool:
    return _array_shape(obj) != memory.shape or not memory.unchanged()


def _set_array(obj: Any, new: Any) -> None:
    if obj.shape != new.shape or obj.dtype != new.dtype or not obj.flags.writeable:
        raise CannotApply(new)
    obj[...] = new


def _array_state(obj: Any, _: Any) -> Any:
    return obj[...]  # another array with the same bytes: the object itself would be known at home


ARRAY = Aspect(_remember_array, _array_changed, _array_state, _set_array)


# torch


def _tensor_shape(obj: Any) -> tuple:
    return tuple(obj.shape), obj.dtype, obj.stride(), obj.device, obj.untyped_storage().data_ptr(), obj.storage_offset(), obj.requires_grad


def _remember_tensor(obj: Any, watch: Any) -> Optional[_Bytes]:
    torch = sys.modules["torch"]
    if obj.layout is not torch.strided:
        watch.notes.add(f"changes inside of {obj.layout} tensors are not looked for: assign what should come home")
        return None
    storage = obj.untyped_storage()
    moved = next((pair for pair in watch.moved if pair[0].untyped_storage().data_ptr() == storage.data_ptr()), None)
    if moved is not None:
        return _Bytes(_tensor_shape(obj), lambda: bool(torch.equal(moved[0].cpu(), moved[1])))

    def read() -> bytes:
        return torch.empty(0, dtype=torch.uint8).set_(storage.cpu()).numpy().tobytes()

    return _Bytes(_tensor_shape(obj), baseline(watch.arena, storage.data_ptr(), storage.nbytes(), read))


def _tensor_changed(obj: Any, memory: Optional[_Bytes]) -> bool:
    return memory is not None and (_tensor_shape(obj) != memory.shape or not memory.unchanged())


def _tensor_state(obj: Any, _: Any) -> Any:
    return obj.detach(), obj.requires_grad


def _set_tensor(obj: Any, state: Any) -> None:
    new, requires_grad = state
    if obj.shape != new.shape or obj.dtype != new.dtype:
        obj.data = new.to(obj.device)
    else:
        obj.detach().copy_(new)
    if obj.is_leaf and obj.requires_grad != requires_grad:
        obj.requires_grad_(requires_grad)


TENSOR = Aspect(_remember_tensor, _tensor_changed, _tensor_state, _set_tensor)


# pandas: a frame keeps its arrays in a manager, and arrays may be shared with other frames until one of them is written to. So new
# contents come as a whole manager, never as bytes for the old arrays.


def frame_arrays(obj: Any) -> list[Any]:
    return list(obj._mgr.arrays)


def _frame_parts(obj: Any) -> list[Any]:
    return [*frame_arrays(obj), *obj._mgr.axes]


def _remember_frame(obj: Any, watch: Any) -> Any:
    numpy = sys.modules["numpy"]
    asked = [_remember_array(part, watch).unchanged for part in frame_arrays(obj) if isinstance(part, numpy.ndarray)]
    return _frame_parts(obj), asked, dict(obj.attrs), getattr(obj, "name", None)


def _frame_changed(obj: Any, memory: Any) -> bool:
    parts, asked, attrs, name = memory
    now = _frame_parts(obj)
    if len(now) != len(parts) or any(a is not b for a, b in zip(now, parts)):
        return True
    return obj.attrs != attrs or getattr(obj, "name", None) is not name or not all(ask() for ask in asked)


def _frame_state(obj: Any, _: Any) -> Any:
    return obj.copy()


def _set_frame(obj: Any, new: Any) -> None:
    if type(obj) is not type(new) or not hasattr(obj, "_update_inplace"):
        raise CannotApply(new)
    obj._update_inplace(new)
    obj.attrs = new.attrs
    if hasattr(new, "_name"):
        obj.name = new.name


FRAME = Aspect(_remember_frame, _frame_changed, _frame_state, _set_frame)
