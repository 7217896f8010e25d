"""What a cell displays in a rank, as MIME bundles: ``display``, and the value of its last expression.

It must never need IPython, nor let a broken ``_repr_…_`` end the cell.
"""

from __future__ import annotations

import base64
import io
import os
import sys
from collections.abc import Iterable
from typing import Any, Optional

from .shell import Shell, Show

SHOWING = ("IPython", "matplotlib")  # modules that show things by IPython's shell
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
        self._show = show or print_text
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
    data: dict[str, Any] = {"text/plain": repr(value)}
    metadata: dict[str, Any] = {}
    if isinstance(value, type):
        return data, metadata
    everything = _call(value, "_repr_mimebundle_")
    if everything is not None:
        more, about = everything if isinstance(everything, tuple) else (everything, {})
        return {**data, **more}, about
    for method, mime in METHODS.items():
        made = _call(value, method)
        if made is None:
            continue
        if isinstance(made, tuple):
            made, metadata[mime] = made
        data[mime] = _base64(made) if isinstance(made, bytes) else made
    if type(value).__module__ == "matplotlib.figure":
        data["image/png"] = _base64(_figure(value))
    return data, metadata


def _call(value: Any, method: str) -> Any:
    function = getattr(value, method, None)
    try:
        return function() if callable(function) else None
    except Exception:
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _figure(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()
