"""The pickler of both ends: cloudpickle, taught that the functions of a notebook share one namespace and that tensors share storages.

Names that functions read are collected in ``needed`` instead of being packed with each function as a snapshot. Whatever can't work
in another process is refused with a sentence. This module must never import a framework by itself.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from typing import Any, Callable, Optional

from . import restore, tensors
from .blobs import SMALL, Buffer, Pieces
from .serializer import cloudpickle

MAIN = "__main__"


class _Namespace:
    """Stands for the notebook's namespace wherever a pickle refers to it."""

    def __reduce__(self) -> Any:
        return restore.namespace, ()


class Refused(pickle.PicklingError):
    """An object that can't leave its process, and why."""

    def __init__(self, obj: Any, why: str) -> None:
        super().__init__(why)
        self.obj = obj


class Pickler(cloudpickle.Pickler):
    """``frame()`` by ``frame()``, each one pickle, all with one memo."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.pieces, self.buffers = Pieces(), []
        super().__init__(self.pieces, protocol=5, buffer_callback=self._buffer)
        self._namespace = namespace
        self.globals_ref[id(namespace)] = _Namespace()
        self.needed: dict[str, None] = {}  # names that packed functions read, in the order of their discovery
        self.packages: set[str] = set()
        self.files: set[str] = set()  # where packed code says it comes from
        self.storages = tensors.Storages()
        self._taken = 0

    def frame(self, value: Any) -> tuple[list[Buffer], int]:
        """``(pieces, bytes)`` of one pickle of ``value``; the bytes count the buffers outside too. Raises what pickling raises."""
        before = len(self.buffers)
        self.dump(value)
        self.pieces.flush()
        pieces, self._taken = self.pieces.done[self._taken :], len(self.pieces.done)
        size = sum(memoryview(part).nbytes for part in [*pieces, *self.buffers[before:]])
        return pieces, size

    def objects(self) -> dict[int, tuple[int, Any]]:
        """What has an index by now, ``(index, object)`` by ``id``: the loading side counts alike."""
        return self.memo.copy()

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < SMALL:
            return True  # inside the pickle: a thousand tiny buffers would cost more than they save
        self.buffers.append(view)
        return False

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)):
            self._note(getattr(obj, "__module__", None))
        reduce = _REDUCERS.get(kind)
        if reduce is not None:
            return reduce(self, obj)
        if isinstance(obj, BaseException):
            return _exception(obj)
        if isinstance(obj, io.IOBase):
            return _file(self, obj)
        if kind.__module__ == "multiprocessing.connection":  # it would be a number elsewhere, and close whatever that is there
            raise Refused(obj, "it is a connection of this process: connect inside the cell")
        reduced = tensors.reduce(obj, self.storages)
        if reduced is not NotImplemented:
            return reduced
        if obj is sys.stdout or obj is sys.stderr:
            return restore.stream, ("stdout" if obj is sys.stdout else "stderr",)
        return super().reducer_override(obj)

    def _dynamic_function_reduce(self, func: types.FunctionType) -> Any:
        make, (code, home, *rest, _), (state, slots), *nothing, setstate = super()._dynamic_function_reduce(func)
        if func.__globals__ is self._namespace:
            self.needed.update(dict.fromkeys(slots["__globals__"]))
            slots["__globals__"] = {}
        # The real cells, not fresh ones: two functions that share a variable still do so there.
        slots["__closure__"] = None
        return (make, (code, home, *rest, func.__closure__), (state, slots), *nothing, setstate)

    def _note(self, module: Optional[str]) -> None:
        if module and module != MAIN:
            self.packages.add(module.partition(".")[0])


def _code(pickler: Pickler, code: types.CodeType) -> Any:
    make = pickler.dispatch_table[types.CodeType]
    pickler.files.add(code.co_filename)
    return restore.code, (make(code)[1], code.co_filename)


def _cell(pickler: Pickler, cell: Any) -> Any:
    try:
        contents = cell.cell_contents
    except ValueError:
        return restore.cell, ()
    return restore.cell, (), (contents,), None, None, restore.fill_cell


def _module(pickler: Pickler, module: types.ModuleType) -> Any:
    if module.__name__ == MAIN:
        raise Refused(module, "it is the notebook itself (__main__); name what the cell needs from it instead")
    pickler._note(module.__name__)
    return pickler.dispatch_table[types.ModuleType](module)


def _exception(exc: BaseException) -> Any:
    cls = type(exc)
    if cls.__reduce__ is BaseException.__reduce__ and cls.__init__ is not BaseException.__init__ and cls.__flags__ & 1 << 9:
        return restore.exception, (cls, exc.args), vars(exc) or None
    if cls is NameError:
        return cls, exc.args, {**vars(exc), "name": getattr(exc, "name", None)}  # Python >= 3.10; what tracebacks suggest another for
    return NotImplemented


def _file(pickler: Pickler, file: Any) -> Any:
    for name in ("stdout", "stderr"):
        if file is getattr(sys, name) or file is getattr(sys, f"__{name}__"):
            return restore.stream, (name,)
    if isinstance(file, (io.BytesIO, io.StringIO)):
        return NotImplemented
    name = getattr(file, "name", None)
    raise Refused(file, f"it is an open file{f' ({name})' if isinstance(name, (str, bytes)) else ''}: open it inside the cell")


_REDUCERS: dict[type, Callable[[Pickler, Any], Any]] = {
    types.CodeType: _code,
    types.CellType: _cell,
    types.ModuleType: _module,
}
