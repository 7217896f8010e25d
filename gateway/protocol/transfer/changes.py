"""What changed inside of objects that came from elsewhere, and how the same change is made to the objects they were made from.

An object has **aspects**: its items, its attributes, its bytes, … For each aspect, ``remember`` keeps what a later ``changed`` needs,
``state`` says the new contents and ``apply`` puts them into another object. Containers are compared item by item by identity, one
level each: what lies deeper is an object of its own. This module must never look into what can't change.
"""

from __future__ import annotations

import copyreg
import io
from typing import Any, Callable, Optional

from . import arrays
from .aspect import Aspect, CannotApply
from .compare import digest


def _differ(now: Any, before: Any) -> bool:
    return len(now) != len(before) or any(a is not b for a, b in zip(now, before))


def _set_list(obj: Any, state: Any) -> None:
    obj[:] = state


def _set_queue(obj: Any, state: tuple) -> None:
    obj.clear()
    obj.extend(state)


def _set_set(obj: set, state: tuple) -> None:
    obj.clear()
    obj.update(state)


def _set_dict(obj: dict, state: tuple) -> None:
    obj.clear()
    for key, value in zip(state[::2], state[1::2]):
        obj[key] = value


def _pairs(obj: dict) -> tuple:
    return tuple(part for pair in obj.items() for part in pair)


def _ids(obj: Any) -> set[int]:
    return {id(item) for item in obj}


def _by_identity(contents: Callable[[Any], Any], apply: Callable[[Any, Any], None]) -> Aspect:
    return Aspect(lambda obj, _: contents(obj), lambda obj, before: _differ(contents(obj), before), lambda obj, _: contents(obj), apply)


# Attributes: of instances, of functions, of the notebook's own classes


def _attributes(obj: Any) -> dict[str, Any]:
    found = dict(getattr(obj, "__dict__", None) or {})
    for name in copyreg._slotnames(type(obj)):  # type: ignore[attr-defined]
        try:
            found[name] = getattr(obj, name)
        except AttributeError:
            pass
    return found


def _class_attributes(cls: type) -> dict[str, Any]:
    hidden = ("__dict__", "__weakref__", "__doc__", "__annotations__", "__annotate_func__", "__annotations_cache__", "_abc_impl")
    return {name: value for name, value in vars(cls).items() if name not in hidden}


def _by_name(contents: Callable[[Any], dict[str, Any]], apply: Callable[[Any, Any], None]) -> Aspect:
    """Told name by name, by identity. A state is ``(names that are gone, names that are new or others now)``."""

    def changed(obj: Any, before: dict[str, Any]) -> bool:
        now = contents(obj)
        return now.keys() != before.keys() or any(now[name] is not value for name, value in before.items())

    def state(obj: Any, before: dict[str, Any]) -> tuple:
        now = contents(obj)
        return tuple(before.keys() - now.keys()), {k: v for k, v in now.items() if k not in before or before[k] is not v}

    return Aspect(lambda obj, _: contents(obj), changed, state, apply)


def _set_attributes(obj: Any, state: tuple) -> None:
    gone, new = state
    own, slots = getattr(obj, "__dict__", {}), copyreg._slotnames(type(obj))  # type: ignore[attr-defined]
    for name in gone:
        if name in slots:
            object.__delattr__(obj, name)
        else:
            own.pop(name, None)
    for name, value in new.items():
        if name in slots:
            object.__setattr__(obj, name, value)
        else:
            own[name] = value


def _set_class_attributes(cls: type, state: tuple) -> None:
    gone, new = state
    for name in gone:
        delattr(cls, name)
    for name, value in new.items():
        setattr(cls, name, value)


def _contents(cell: Any) -> tuple:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _set_contents(cell: Any, state: tuple) -> None:
    if state:
        cell.cell_contents = state[0]
    else:
        del cell.cell_contents


# What says itself how it is pickled: told by the bytes it pickles to, other objects that are watched left out


def _shallow_digest(value: Any, obj: Any, known: dict[int, int]) -> bytes:
    from .serializer import cloudpickle

    class Shallow(cloudpickle.Pickler):
        def persistent_id(self, part: Any) -> Optional[int]:
            return known.get(id(part)) if part is not obj else None

    file = io.BytesIO()
    try:
        Shallow(file, protocol=5).dump(value)
    except Exception:
        return b""  # it can't go home either
    return digest(file.getbuffer())


def _remember_getstate(obj: Any, watch: Any) -> Any:
    """What ``__getstate__`` hands out as it is, is compared by identity; what it makes for the purpose, by its bytes."""

    def ask() -> dict[str, Any]:
        state, own = obj.__getstate__(), getattr(obj, "__dict__", {})
        state = state if isinstance(state, dict) else {"": state}
        return {k: v if own.get(k) is v else _shallow_digest(v, obj, watch.known) for k, v in state.items()}

    return ask, ask()


def _getstate_changed(_obj: Any, memory: Any) -> bool:
    ask, before = memory
    now = ask()
    same = [now[name] == value if isinstance(value, bytes) else now[name] is value for name, value in before.items() if name in now]
    return now.keys() != before.keys() or not all(same)


def _set_getstate(obj: Any, state: Any) -> None:
    if hasattr(obj, "__setstate__"):
        obj.__setstate__(state)
    else:
        vars(obj).update(state)


def _remember_opaque(obj: Any, watch: Any) -> Any:
    return lambda: _shallow_digest(obj.__reduce_ex__(4), obj, watch.known), _shallow_digest(obj.__reduce_ex__(4), obj, watch.known)


def _set_opaque(obj: Any, reduced: Any) -> None:
    """``reduced`` is what ``__reduce_ex__`` gives: ``(make, arguments, state, …)``."""
    make, arguments, state = (*reduced, None)[:3]
    if state is None or not hasattr(obj, "__setstate__"):
        raise CannotApply(make(*arguments))
    obj.__setstate__(state)


def _same_bytes(obj: Any, _: Any) -> bytes:
    return digest(memoryview(obj).cast("B"))


ASPECTS: dict[str, Aspect] = {
    "list": _by_identity(tuple, _set_list),
    "queue": _by_identity(tuple, _set_queue),
    "dict": _by_identity(_pairs, _set_dict),
    "set": Aspect(lambda obj, _: frozenset(obj), lambda obj, before: _ids(obj) != _ids(before), lambda obj, _: tuple(obj), _set_set),
    "buffer": Aspect(_same_bytes, lambda obj, before: _same_bytes(obj, None) != before, lambda obj, _: obj[:], _set_list),
    "cell": _by_identity(_contents, _set_contents),
    "attributes": _by_name(_attributes, _set_attributes),
    "class": _by_name(_class_attributes, _set_class_attributes),
    "getstate": Aspect(_remember_getstate, _getstate_changed, lambda obj, _: obj.__getstate__(), _set_getstate),
    "opaque": Aspect(
        _remember_opaque, lambda _, memory: memory[0]() != memory[1], lambda obj, _: tuple(obj.__reduce_ex__(4))[:3], _set_opaque
    ),
    "array": arrays.ARRAY,
    "tensor": arrays.TENSOR,
    "frame": arrays.FRAME,
}
