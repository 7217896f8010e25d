"""What a cell displays in a rank, as MIME bundles; and ``get_ipython()`` for what IPython adds to Python.

IPython itself does both where the image has it and the cell asks for it. This module must never need it.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, NamedTuple, Optional

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


class Display(NamedTuple):
    value: Callable[[Any], None]
    names: dict[str, Any]  # what the namespace gets


@contextmanager
def display(namespace: dict[str, Any], show: Optional[Show]) -> Iterator[Display]:
    shown = show or print_text

    def each(*values: Any, **_: Any) -> None:
        for value in values:
            shown(*bundle(value))

    yield Display(each, {"display": each, "get_ipython": Shell(namespace, each).itself})


def print_text(data: dict[str, Any], _metadata: dict[str, Any]) -> None:
    print(data.get("text/plain", ""))


def bundle(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """``(data, metadata)`` by the methods that notebooks' objects have. A method that fails costs its own format only."""
    import base64

    data: dict[str, Any] = {"text/plain": repr(value)}
    metadata: dict[str, Any] = {}
    if isinstance(value, type):
        return data, metadata
    everything = _call(value, "_repr_mimebundle_")
    if everything is not None:
        more, about = everything if isinstance(everything, tuple) else (everything, {})
        data.update(more)
        metadata.update(about)
        return data, metadata
    for method, mime in METHODS.items():
        made = _call(value, method)
        if made is None:
            continue
        if isinstance(made, tuple):
            made, metadata[mime] = made
        data[mime] = base64.b64encode(made).decode("ascii") if isinstance(made, bytes) else made
    if "image/png" not in data and type(value).__module__ == "matplotlib.figure":
        data["image/png"] = base64.b64encode(_figure(value)).decode("ascii")
    return data, metadata


def _call(value: Any, method: str) -> Any:
    function = getattr(value, method, None)
    try:
        return function() if callable(function) else None
    except Exception:
        return None


def _figure(figure: Any) -> bytes:
    import io

    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


class Shell:
    """``get_ipython()`` in a rank: runs ``!`` lines itself, and hands magics to an IPython of its own where the image has one."""

    def __init__(self, namespace: dict[str, Any], show: Callable[..., None]) -> None:
        self._namespace, self._show = namespace, show
        self._real: Any = None

    def itself(self) -> "Shell":
        return self

    def system(self, command: str) -> None:
        """``!command``: its output is the rank's own."""
        sys.stdout.flush()
        code = subprocess.run(self._expanded(command), shell=True).returncode
        self._namespace["_exit_code"] = code

    def getoutput(self, command: str) -> list[str]:
        """``x = !command``"""
        done = subprocess.run(self._expanded(command), shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout.splitlines()

    def _expanded(self, command: str) -> str:
        return command

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ipython(), name)

    def _ipython(self) -> Any:
        if self._real is None:
            try:
                module = importlib.import_module("IPython.core.interactiveshell")
            except ImportError:
                raise RuntimeError("The ranks' image has no IPython, so no magics. Install it, or write the cell without them.") from None
            self._real = module.InteractiveShell.instance(user_ns=self._namespace)
        return self._real
