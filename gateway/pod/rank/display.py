"""What a cell displays in a rank, as MIME bundles: ``display``, and the value of its last expression.

It must never need IPython, nor let a broken ``_repr_…_`` end the cell.
"""

from __future__ import annotations

import base64
import io
import math
import os
import sys
from collections.abc import Iterable
from typing import Any, Optional

from ...protocol.transfer import failures
from .shell import Shell, Show

SHOWING = ("IPython", "matplotlib")  # modules that show things by IPython's shell
DEEPEST = 100  # values inside of values, of what is displayed
INLINE = ("inline", "backend_inline")  # how backends of matplotlib end that draw into the notebook

METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_latex_": "text/latex",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}


class Display:
    """Called with values. ``names`` are what the namespace got from here; more come if IPython itself is started."""

    def __init__(self, namespace: dict[str, Any], show: Optional[Show]) -> None:
        self._show = (lambda kind, content: show(kind, presentable(content))) if show else print_text
        self.names: dict[str, Any] = {"display": self}
        self._shell = Shell(namespace, self._show, self.names)
        namespace.update(self.names)

    def __call__(self, *values: Any, **_: Any) -> None:
        for value in values:
            data, metadata = bundle(value)
            self._show("display_data", {"data": data, "metadata": metadata, "transient": {}})

    def prepare(self, texts: Iterable[str]) -> None:
        """Before a cell, if it or what it took along (``texts``) speaks of what shows things by IPython, or has imported it."""
        if any(name in sys.modules for name in SHOWING) or any(name in text for text in texts for name in SHOWING):
            self._shell.start()

    def finish(self) -> None:
        """After a cell: figures that it has drawn and not shown, as notebooks do."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not os.environ.get("MPLBACKEND", "").endswith(INLINE) or not pyplot.get_backend().endswith(INLINE):
            return
        self(*(pyplot.figure(number) for number in pyplot.get_fignums()))
        pyplot.close("all")


def print_text(_msg_type: str, content: dict[str, Any]) -> None:
    print(content.get("data", {}).get("text/plain", ""))


def bundle(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """``(data, metadata)`` by the methods that notebooks' objects have. One that fails costs its own format only."""
    data: dict[str, Any] = {"text/plain": _text(value)}
    metadata: dict[str, Any] = {}
    if isinstance(value, type):
        return data, metadata
    everything = _call(value, "_repr_mimebundle_")
    more, about = everything if isinstance(everything, tuple) and len(everything) == 2 else (everything, {})
    if isinstance(more, dict):
        return {**data, **more}, about if isinstance(about, dict) else {}
    for method, mime in METHODS.items():
        made = _call(value, method)
        if made is None:
            continue
        if isinstance(made, tuple) and len(made) == 2:
            made, metadata[mime] = made
        data[mime] = made
    if type(value).__module__ == "matplotlib.figure":
        data["image/png"] = _figure(value)
    return data, metadata


def presentable(value: Any, around: tuple[int, ...] = ()) -> Any:
    """As a message can carry it: bytes as base64, as notebooks have it; what isn't JSON as its text. ``around``: ids of what it is in."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half of a surrogate pair is nothing that can be sent
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    inside = *around, id(value)
    if id(value) in around or len(inside) > DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {presentable(str(key)): presentable(each, inside) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [presentable(each, inside) for each in value]
    return presentable(_text(value))


def _text(value: Any) -> str:
    try:
        return repr(value)
    except Exception as exc:
        return f"<{type(value).__name__} that can't be shown: {failures.named(exc)}>"


def _call(value: Any, method: str) -> Any:
    function = getattr(value, method, None)
    try:
        return function() if callable(function) else None
    except Exception:
        return None


def _figure(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()
