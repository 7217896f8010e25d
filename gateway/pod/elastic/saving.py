"""What of a state is saved, and how it comes back into the objects that a new start of the cell has made.

It must never put a new object where the old one can be filled, as the cell's other names for it would go on with the old one, and never
leave half a file.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DICT, VALUE = "state_dict", "value"


def contents(values: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Of each value what is to be saved: its ``state_dict()`` where it has one."""
    return {name: (DICT, value.state_dict()) if _has_dict(value) else (VALUE, value) for name, value in values.items()}


def save(path: Path, saved: dict[str, Any]) -> None:
    """In one step. Raises ``OSError``, and whatever a value raises that can't be pickled."""
    draft = path.with_name(path.name + ".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.save(saved, file)
        else:
            pickle.dump(saved, file, protocol=pickle.HIGHEST_PROTOCOL)
    draft.replace(path)


def load(path: Path) -> dict[str, Any]:
    """What ``save`` has written, tensors in host memory. Raises ``OSError``."""
    torch = sys.modules.get("torch")
    with path.open("rb") as file:
        zipped = file.read(2) == b"PK"  # as torch writes it
        file.seek(0)
        if zipped:
            if torch is None:
                import torch
            return torch.load(file, map_location="cpu", weights_only=False)  # type: ignore[no-any-return]
        return pickle.load(file)  # type: ignore[no-any-return]


def fill(value: Any, kind: str, saved: Any) -> Any:
    """``value``, filled with what was saved of it; else what is to stand in its place."""
    if kind == DICT and _has_dict(value):
        value.load_state_dict(saved)
        return value
    if type(value) is not type(saved):
        return saved
    if isinstance(value, list):
        value[:] = saved
    elif isinstance(value, (dict, set)):
        value.clear()
        value.update(saved)
    elif hasattr(value, "copy_") and value.shape == saved.shape:  # a tensor
        with sys.modules["torch"].no_grad():
            value.copy_(saved)
    elif type(value).__module__ == "numpy" and getattr(value, "shape", ()) == getattr(saved, "shape", None) and value.shape:
        value[...] = saved
    else:
        return saved
    return value


def _has_dict(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
