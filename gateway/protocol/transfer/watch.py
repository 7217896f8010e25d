"""Remembers what was loaded as it was, and tells afterwards what is different. Which aspects a type has is decided here.

It holds every watched object until the cell is over: ids must not be used twice meanwhile.
"""

from __future__ import annotations

import array
import collections
import copyreg
import datetime
import decimal
import enum
import fractions
import gc
import logging
import pathlib
import re
import sys
import types
import uuid
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Optional

from .aspect import Aspect
from .changes import ASPECTS
from .compare import Arena

FIXED = (  # what can't change, or has nothing of its own that would have to come home
    *(int, float, complex, str, bytes, tuple, frozenset, type(None), type(Ellipsis), type(NotImplemented), range, slice, memoryview),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction, uuid.UUID),
    *(enum.Enum, pathlib.PurePath, re.Pattern, logging.Logger, logging.Handler, property, staticmethod, classmethod),
    *(types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.MethodType, types.MappingProxyType, weakref.ref),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
OPAQUE_LIMIT = 10_000  # objects; beyond, asking each one how it is pickled would take minutes
REACH_LIMIT = 5_000_000  # objects
_LEAVES = {int, float, complex, bool, str, bytes, type(None)}


class Watch:
    """``memo``: the loaded objects by index."""

    def __init__(self, memo: dict[int, Any], arena: Optional[Arena], moved: list[tuple[Any, Any]]) -> None:
        self.arena, self.moved = arena, moved
        self.objects = memo
        self.notes: set[str] = set()
        self._kinds: dict[type, tuple[str, ...]] = {}
        self.known: dict[int, int] = {}
        self._memories: list[tuple[int, str, Any]] = []
        self._remember()

    def _remember(self) -> None:
        references = sys.getrefcount
        watched = []
        for index in self.objects:
            obj = self.objects[index]
            names = self._aspects(obj)
            if names and references(obj) > 3:  # others are steps of loading that nobody can reach
                watched.append((index, obj, names))
                self.known[id(obj)] = index
        inside = {id(part) for _, obj, names in watched if "frame" in names for part in obj._mgr.arrays}
        opaque = 0
        for index, obj, names in watched:
            for name in names:
                opaque += name == "opaque"
                if opaque > OPAQUE_LIMIT and name == "opaque":
                    self.notes.add(f"changes inside of objects like {type(obj).__name__} are not looked for: there are too many")
                elif id(obj) not in inside:
                    self._memories.append((index, name, ASPECTS[name].remember(obj, self)))

    def changed(self) -> Iterator[tuple[int, str, Aspect, Any]]:
        """``(index, aspect's name, aspect, memory)`` of each difference."""
        for index, name, memory in self._memories:
            if ASPECTS[name].changed(self.objects[index], memory):
                yield index, name, ASPECTS[name], memory

    def _aspects(self, obj: Any) -> tuple[str, ...]:
        kind = type(obj)
        if isinstance(obj, type):
            return ("class",) if obj.__module__ == "__main__" and not issubclass(obj, enum.Enum) else ()
        if kind not in self._kinds:
            self._kinds[kind] = aspects_of(kind)
        return self._kinds[kind]


def aspects_of(kind: type) -> tuple[str, ...]:
    if issubclass(kind, FIXED):
        return ()
    package = kind.__module__.partition(".")[0]
    if package in ("numpy", "torch", "pandas"):
        known = _of_a_package(kind, package)
        if known is not None:
            return known
    has_slots = bool(copyreg._slotnames(kind))  # type: ignore[attr-defined]
    own = ("attributes",) if (hasattr(kind, "__dict__") and "__dict__" in dir(kind)) or has_slots else ()
    for base, name in ((list, "list"), (dict, "dict"), (set, "set"), (collections.deque, "queue")):
        if issubclass(kind, base):
            return (name, *own)
    if issubclass(kind, (bytearray, array.array)):
        return ("buffer", *own)
    if issubclass(kind, types.CellType):
        return ("cell",)
    if issubclass(kind, (types.FunctionType, BaseException)):
        return ("attributes",)
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return ("opaque",)
    if getattr(kind, "__getstate__", None) is not getattr(object, "__getstate__", None):
        return ("getstate",)
    return own


def _of_a_package(kind: type, package: str) -> Optional[tuple[str, ...]]:
    module = sys.modules.get(package)
    if module is None:
        return None
    if package == "numpy":
        if issubclass(kind, module.ndarray):
            return ("array",)
        return () if issubclass(kind, (module.generic, module.dtype, module.ufunc)) else None
    if package == "torch":
        if kind in (module.Tensor, module.nn.Parameter):
            return ("tensor",)
        fixed = (module.dtype, module.device, module.UntypedStorage, module.memory_format, module.layout)
        return () if issubclass(kind, fixed) else None
    if issubclass(kind, (module.DataFrame, module.Series)):
        return ("frame",)
    return ()


def reach(roots: Iterable[Any], stop: Iterable[Any] = ()) -> set[int]:
    """The ids of all objects that can be reached from ``roots`` without going through ``stop``, a class or a module."""
    seen = {id(obj) for obj in stop}
    found, todo = set(), list(roots)
    while todo and len(found) < REACH_LIMIT:
        obj = todo.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        found.add(id(obj))
        if not isinstance(obj, (type, types.ModuleType)):
            todo.extend(part for part in gc.get_referents(obj) if type(part) not in _LEAVES)
    return found
