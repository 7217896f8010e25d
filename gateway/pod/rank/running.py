"""Executes compiled code as a notebook does: with ``await`` at the top, and the last expression's value shown."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import types
from typing import Any, Callable, Optional


def execute(statements: types.CodeType, last: Optional[types.CodeType], namespace: dict[str, Any], show: Callable[[Any], None]) -> None:
    """Raises what the code raises. All of one cell's code that awaits shares one event loop."""
    if _awaits(statements) or (last is not None and _awaits(last)):
        value = asyncio.run(_asynchronous(statements, last, namespace))
    else:
        exec(statements, namespace)
        value = eval(last, namespace) if last is not None else None
    if value is not None:
        show(value)


async def _asynchronous(statements: types.CodeType, last: Optional[types.CodeType], namespace: dict[str, Any]) -> Any:
    value = None
    for code in filter(None, (statements, last)):
        value = eval(code, namespace)
        if _awaits(code):
            value = await value
    return value if last is not None else None


def _awaits(code: types.CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def find_device(local_rank: int) -> Any:
    """``torch.device`` of a rank that is ``local_rank``-th on its machine; ``"cpu"`` where there is no torch.

    A process that sees one GPU has it under number 0, whatever its rank.
    """
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank % torch.cuda.device_count())
