"""Questions about bursts to the gateway, by way of this kernel's supervisor.

It must never wait for a gateway without saying so: whoever follows a burst is told that it is away, and tries again.
"""

from __future__ import annotations

from typing import Any

from ...protocol.errors import BrokerUnavailable, ElasticError
from ..supervisor import ask

AWAY = BrokerUnavailable.reason
EVENTS_SECONDS = 45.0  # for a question that is answered when something happens


def call(op: str, timeout: float = 30.0, **fields: Any) -> dict[str, Any]:
    """The gateway's answer. Raises ``ElasticError`` with its reason; ``AWAY`` where no gateway answers just now."""
    __tracebackhide__ = True
    answer = ask("burst", timeout=timeout, op=op, **fields)
    if not answer.get("ok"):
        raise ElasticError(str(answer.get("message")), reason=str(answer.get("reason")))
    return answer
