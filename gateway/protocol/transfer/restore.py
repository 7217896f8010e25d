"""What pickles made here call by name when they are loaded. Names and signatures are part of the format: see ``FORMAT``.

Must never import a framework that the loaded objects don't bring up themselves.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable


class Place:
    """Where objects are loaded: functions of a notebook into ``namespace``, tensors of an accelerator to what ``device()`` says."""

    def __init__(self, namespace: dict[str, Any], device: Callable[[], Any] = lambda: "cpu") -> None:
        self.namespace, self._device = namespace, device
        self.moved: list[tuple[Any, Any]] = []  # (bytes on the accelerator, the same bytes as they came)

    def device(self) -> Any:
        return self._device()


_places: list[Place] = []


@contextmanager
def into(place: Place) -> Iterator[Place]:
    """While it lasts, this thread loads into ``place``."""
    _places.append(place)
    try:
        yield place
    finally:
        _places.pop()


def here() -> Place:
    return _places[-1]


def namespace() -> dict[str, Any]:
    return here().namespace


def same(value: Any) -> Any:
    return value


def stream(name: str) -> Any:
    return getattr(sys, name)


def code(arguments: tuple, filename: str) -> types.CodeType:
    return types.CodeType(*arguments).replace(co_filename=filename)


def cell() -> Any:
    return types.CellType()


def fill_cell(empty: Any, state: tuple) -> None:
    empty.cell_contents = state[0]


def exception(cls: type, arguments: tuple) -> BaseException:
    """Without ``__init__``, whose arguments may be others than ``args``."""
    return cls.__new__(cls, *arguments)
