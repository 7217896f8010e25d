"""A gateway that is killed by itself: ``killed.py N [settings]`` ends with SIGKILL right after its N-th write to the cluster."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from gateway.backends.kubernetes.api import KubeApi
from gateway.cli import main

left = int(sys.argv.pop(1))


def counted(write: Any) -> Any:
    async def and_then(*args: Any, **kwargs: Any) -> Any:
        global left
        try:
            return await write(*args, **kwargs)
        finally:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return and_then


for name in ("create", "patch", "delete"):
    setattr(KubeApi, name, counted(getattr(KubeApi, name)))

if __name__ == "__main__":
    main()
