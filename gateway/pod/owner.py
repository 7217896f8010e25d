"""The process that a supervisor belongs to, where it belongs to one: its end is the supervisor's end.

It must never mistake another process of the same number for the owner.
"""

from __future__ import annotations

import os
from typing import Callable

from ..protocol.model import Spec
from .child import started
from .reactor import Reactor

POLL_SECONDS = 2.0  # where the system has no descriptors for processes


def watch_owner(reactor: Reactor, spec: Spec, ended: Callable[[], None]) -> None:
    """Call ``ended`` once the owner is gone; a gateway's kernel has none and outlives its gateway."""
    pid = spec.owner_pid
    if pid is None:
        return
    if started(pid) != spec.owner_started:
        ended()
    elif hasattr(os, "pidfd_open"):
        descriptor = os.pidfd_open(pid)

        def gone() -> None:
            reactor.remove(descriptor)
            os.close(descriptor)
            ended()

        reactor.add(descriptor, gone)
    else:
        reactor.call_later(POLL_SECONDS, lambda: watch_owner(reactor, spec, ended))
