"""Where the object lies that keeps a name from being packed, as a path that its user can read, and what to do about it.

Only asked after a failure, so it may take its time; it must never raise.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Optional

from .pickler import Pickler, Refused

DEEPEST = 40
WIDEST = 200  # items looked at in one container

ADVICE = (
    (("lock", "RLock", "Condition", "Event", "Semaphore", "_RLock"), "make it inside the cell, or leave it out in __getstate__"),
    (("Thread", "Process", "Popen", "ThreadPoolExecutor", "ProcessPoolExecutor", "Pool"), "start it inside the cell"),
    (("socket", "SSLSocket", "Client", "Session"), "connect inside the cell"),
    (("generator", "async_generator", "coroutine", "Task", "Future"), "make it inside the cell, or send list(…) of it"),
    (("Connection", "Cursor", "Engine", "connection", "cursor"), "connect inside the cell; send the address, or the rows that were read"),
    (("DataLoader", "_MultiProcessingDataLoaderIter"), "make it inside the cell from the data set"),
    (("ProcessGroup", "FullyShardedDataParallel", "Store", "TCPStore"), "it belongs to one process group: make it inside the cell"),
    (
        ("ZMQInteractiveShell", "TerminalInteractiveShell", "InteractiveShell"),
        "it is the notebook's own shell: call what you need in the notebook",
    ),
)


def explain(name: str, value: Any, namespace: dict[str, Any], error: BaseException) -> str:
    """``model.log.handlers[0].lock (_thread.RLock) can't leave …: what to do``."""
    path, culprit = name, value
    try:
        path, culprit = _find(name, value, namespace, getattr(error, "obj", None))
    except Exception:
        pass
    kind = type(culprit)
    shown = kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
    why = f"{error}" if isinstance(error, Refused) else _advice(kind) or f"{type(error).__name__}: {error}"
    return f"{path} ({shown}) can't be sent to another process: {why}"


def _advice(kind: type) -> str:
    for names, text in ADVICE:
        if any(base.__name__ in names and base.__module__ != "__main__" for base in kind.__mro__):
            return text
    return ""


def _find(path: str, value: Any, namespace: dict[str, Any], refused: Any) -> tuple[str, Any]:
    seen = {id(value)}
    for _ in range(DEEPEST):
        if value is refused or _advice(type(value)):
            break  # what it is made of says less
        for label, part in _parts(value, namespace):
            if id(part) not in seen and _fails(part, namespace):
                seen.add(id(part))
                path, value = path + label, part
                break
        else:
            break
    return path, value


def _fails(value: Any, namespace: dict[str, Any]) -> Optional[BaseException]:
    try:
        Pickler(namespace).frame(value)
    except Exception as exc:
        return exc
    return None


def _parts(value: Any, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for number, (key, part) in enumerate(value.items()):
            if number == WIDEST:
                return
            yield f"[{key!r:.40}]", part
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value[:WIDEST]):
            yield f"[{number}]", part
    elif isinstance(value, (set, frozenset)):
        for part in list(value)[:WIDEST]:
            yield " → an item", part
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value, namespace)
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, type):
        for name, part in list(vars(value).items()):
            if name not in ("__dict__", "__weakref__"):
                yield f".{name}", getattr(part, "__func__", part)
    else:
        yield from ((f".{name}", part) for name, part in list(getattr(value, "__dict__", {}).items()))
        yield from ((f".{name}", getattr(value, name)) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name))


def _of_function(function: types.FunctionType, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield f" → {name}", cell.cell_contents
        except ValueError:
            continue
    for number, part in enumerate(function.__defaults__ or ()):
        yield f" → default {number + 1}", part
    for name, part in vars(function).items():
        yield f".{name}", part
    if function.__globals__ is not namespace:
        names = [name for name in function.__code__.co_names if name in function.__globals__]
        yield from ((f" → {name}", function.__globals__[name]) for name in names)
