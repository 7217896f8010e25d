"""What a cell displays in a rank, as MIME bundles: ``display``, and the value of its last expression.

It must never need IPython, nor let a broken ``_repr_…_`` end the cell.
"""

from __future__ import annotations

import base64
import io
from typing import Any, Callable, Optional

from .shell import Shell

Show = Callable[[dict[str, Any], dict[str, Any]], None]

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
            self._show(*bundle(value))

    def prepare(self, source: str) -> None:
        """Before a cell that speaks of IPython itself."""
        if "IPython" in source:
            self._shell.start()


def print_text(data: dict[str, Any], _metadata: dict[str, Any]) -> None:
    print(data.get("text/plain", ""))


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
