"""Questions about bursts to the gateway, by way of this kernel's supervisor.

It must never wait for a gateway without saying so: whoever follows a burst is told that it is away, and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...protocol.errors import BrokerUnavailable, ElasticError, SupervisorLost
from ..supervisor import ask

AWAY = BrokerUnavailable.reason
LOST = (AWAY, SupervisorLost.reason)  # reasons of a question that nobody has answered, whether or not it was heard
EVENTS_SECONDS = 45.0  # for a question that is answered when something happens
RETRY_SECONDS = 0.5  # between two tries to reach a gateway that is away


def call(op: str, timeout: float = 30.0, **fields: Any) -> dict[str, Any]:
    """The gateway's answer. Raises ``ElasticError`` with its reason; ``AWAY`` where no gateway answers just now."""
    __tracebackhide__ = True
    answer = ask("burst", timeout=timeout, op=op, **fields)
    if not answer.get("ok"):
        raise ElasticError(str(answer.get("message")), reason=str(answer.get("reason")))
    return answer


def start(which: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Have a burst begin that was made; how it stands. A gateway that goes away over the question may have begun it: it is asked once it is
    back, and no cell has an error whose workers run. Raises ``ElasticError``."""
    __tracebackhide__ = True
    lost = False
    while True:
        try:
            shown: dict[str, Any] = call("show", burst=which)["burst"] if lost else {"state": "new"}
            return shown if shown["state"] != "new" else call("start", burst=which)["burst"]  # type: ignore[no-any-return]
        except ElasticError as exc:
            if exc.reason not in LOST:
                raise
        if not lost:
            say("the gateway is away; whether the workers have begun is asked once it is back")
        lost = True
        time.sleep(RETRY_SECONDS)
