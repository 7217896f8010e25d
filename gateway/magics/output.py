"""What a kernel publishes is kept until its supervisor has read it. ipykernel's own socket drops messages once a thousand wait, which a
supervisor that gets no CPU for some tens of milliseconds is enough for. This module must never change anything but that mark."""

from __future__ import annotations

from typing import Any


def install(shell: Any) -> None:
    """Nothing where the shell belongs to no kernel."""
    thread = getattr(getattr(shell, "kernel", None), "iopub_thread", None)
    if thread is not None and getattr(thread, "socket", None) is not None:
        thread.schedule(lambda: setattr(thread.socket, "sndhwm", 0))  # in its own thread, as sockets want it; counts for open lines too
