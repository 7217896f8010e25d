"""A gateway to which the API server is away for a moment: ``unanswered.py FIRST COUNT done|lost [settings]`` fails so many of its writes
to the cluster, from the FIRST on, though they are carried out (``done``), or without (``lost``)."""

from __future__ import annotations

import sys
from typing import Any

from gateway.backends.kubernetes.api import KubeApi
from gateway.backends.kubernetes.errors import ApiUnavailable
from gateway.cli import main

first, count, how = int(sys.argv.pop(1)), int(sys.argv.pop(1)), sys.argv.pop(1)
written = 0


def unanswered(write: Any) -> Any:
    async def and_then(*args: Any, **kwargs: Any) -> Any:
        global written
        written += 1
        away = first <= written < first + count
        if not away or how == "done":
            answer = await write(*args, **kwargs)
        if away:
            raise ApiUnavailable("The Kubernetes API server has gone away, for a test.")
        return answer

    return and_then


for name in ("create", "patch", "delete"):
    setattr(KubeApi, name, unanswered(getattr(KubeApi, name)))

if __name__ == "__main__":
    main()
