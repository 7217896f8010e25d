"""The kernel's line to its own supervisor: one JSON object a line over a Unix socket, each answered by one line.

It must never block for long: whoever types ``%gpu`` is told within seconds that nobody answers.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from ..protocol.errors import SupervisorLost, WireError
from ..protocol.wire import dumps, loads

TIMEOUT = 5.0  # seconds for a whole question and answer, which takes a millisecond unless the supervisor is gone
MAX_ANSWER = 1 << 20

NOT_ELASTIC = (
    "This kernel doesn't run under the elastic gateway, so no GPU comes and goes with its cells. "
    "Choose a kernel of the gateway (“Python (elastic GPU)”) to have one."
)


def ask(do: str, *, timeout: float = TIMEOUT, **fields: Any) -> dict[str, Any]:
    """The supervisor's answer, as it came. Raises ``SupervisorLost`` where there is none or it doesn't answer in ``timeout`` seconds."""
    __tracebackhide__ = True
    path = os.environ.get("ELASTIC_SUPERVISOR")
    if not path:
        raise SupervisorLost(NOT_ELASTIC, reason="not_elastic")
    deadline = time.monotonic() + timeout
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(timeout)
            line.connect(path)
            line.sendall(dumps({"do": do, **fields}) + b"\n")
            while b"\n" not in answer:
                line.settimeout(max(0.001, deadline - time.monotonic()))
                chunk = line.recv(1 << 16)
                if not chunk or len(answer) > MAX_ANSWER:
                    raise OSError("its answer was cut short")
                answer += chunk
        return loads(answer.partition(b"\n")[0])
    except (OSError, WireError) as exc:
        raise SupervisorLost(
            f"The supervisor beside this kernel doesn't answer: {exc}. Try again; if it stays so, restart the kernel."
        ) from exc
