"""What one aspect of an object is, as ``changes`` explains it."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple


class CannotApply(Exception):
    """The change can't be made in place; ``value`` is the whole new object."""

    def __init__(self, value: Any) -> None:
        super().__init__("it can't be changed in place")
        self.value = value


class Aspect(NamedTuple):
    """``remember(obj, watch)`` → memory; ``changed(obj, memory)`` → bool; ``state(obj, memory)``; ``apply(obj, state)``, which may raise
    ``CannotApply``."""

    remember: Callable[[Any, Any], Any]
    changed: Callable[[Any, Any], bool]
    state: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], None]
