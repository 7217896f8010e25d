"""Quotas of users where ranks are pods: the scheduler gives their GPUs, the policy says how many one user may have.

It must never end a rank because a quota has become smaller: as with a kernel, what runs keeps what it has.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...broker.broker import Broker
from ...broker.elsewhere import NONE
from ..record import Record


class Quota:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def hold(self, record: Record, pods: int, running: Mapping[str, int] = NONE) -> None:
        """So many of its pods have, or ask for, their GPUs. ``running``: GPUs of those that run, by node."""
        self._broker.elsewhere.hold(record.id, record.user, record.gpus * pods + record.role_gpus, running)

    def end(self, record: Record) -> None:
        self._broker.elsewhere.hold(record.id, record.user, 0)

    def never(self, record: Record) -> str:
        """Why it can't have the least that it asks for, whatever comes; "" where it can."""
        most, wanted = self._broker.elsewhere.most(record.user), record.least_gpus
        if most is None or wanted <= most:
            return ""
        whose = self._broker.elsewhere.allowed(record.id, record.user)[1]
        return f"These workers ask for {wanted} GPUs, and {whose} at a time here. Ask for fewer workers, or ask the administrator for more."

    def waits(self, record: Record) -> str:
        """Why it may not have the least that it asks for just now; "" where it may."""
        allowed, whose = self._broker.elsewhere.allowed(record.id, record.user)
        if allowed is None or record.least_gpus <= allowed:
            return ""
        return f"waits for {record.least_gpus} GPUs: {whose}, and your other kernels and bursts leave room for {allowed}"

    def workers(self, record: Record, wanted: int) -> int:
        """Of so many, those that it may have now."""
        allowed = self._broker.elsewhere.allowed(record.id, record.user)[0]
        return wanted if allowed is None or not record.gpus else min(wanted, allowed // record.gpus)
