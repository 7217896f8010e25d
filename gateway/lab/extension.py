"""Server extension of the user's Lab server: with ``--gateway-url`` given, kernels are reached through our classes.

Installing the wheel switches it on. Without a gateway it must never change anything.
"""

from __future__ import annotations

from typing import Any


def _link_jupyter_server_extension(serverapp: Any) -> None:
    """Called while the server reads its extensions, before its managers and handlers are made."""


def _load_jupyter_server_extension(serverapp: Any) -> None:
    """Called last; nothing is left to do."""
