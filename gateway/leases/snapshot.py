"""The book as ``GET /api/gpu`` shows it. Reads only; it must never hold a clock's time.

Where the contract has moments (``since``, ``idle_since``, ``ends_by``) there are seconds here, from ``now`` back, or for
``ends_by`` and ``hold_until`` (the user's own hold, in any phase) forward; the broker makes them ISO 8601.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from ..protocol.model import Phase
from .book import Book
from .record import KernelRecord

PAST, AHEAD = ("since", "idle_since"), ("ends_by", "hold_until")  # the keys that the broker converts


def snapshot(book: Book, now: float) -> dict[str, list[Any]]:
    """``{"gpus", "leases", "queue"}`` of the contract, ``drained``, names of nodes, and ``elsewhere``, GPUs that users have without a
    lease. ``leases`` has every kernel that may ask for GPUs, in any phase."""
    places = Counter[tuple[str, str]]()
    queue = []
    for record in book.queue():
        line = record.node, record.resource
        places[line] += 1
        queue.append(
            {
                "kernel_id": record.kernel_id,
                "user": record.user,
                "notebook": record.display,
                "node": record.node,
                "count": record.count,
                "position": places[line],
                "since": now - record.wanted_since,
                "quota": record.place.quota if record.place else "",
            }
        )
    return {
        "gpus": [
            {
                "uuid": gpu.uuid,
                "node": gpu.node,
                "flavor": gpu.flavor,
                "memory_bytes": gpu.memory_bytes,
                "simulated": gpu.simulated,
                "rung": str(gpu.rung),
                "rung_reason": gpu.reason,
                "leasable": gpu.uuid not in book.devices.lost and gpu.node not in book.drained,
            }
            for gpu in book.gpus.values()
        ],
        "leases": [lease(book, record, now) for record in book.kernels.values() if record.count],
        "queue": queue,
        "drained": sorted(book.drained),
        "elsewhere": [{"holder": each.holder, "user": each.user, "gpus": each.gpus} for each in book.elsewhere.values()],
    }


def lease(book: Book, record: KernelRecord, now: float) -> dict[str, Any]:
    """One kernel's lease. ``ends_by``: when it ends if nothing else runs; while cells run, the maximum hold's end, which then
    waits for them (negative: overdue). ``rung``: what can be done with its state, the worse of its own word and its GPUs'."""
    rung, reason = book.devices.rung(record)
    ends = math.inf
    if record.phase is Phase.HOLDING and record.gpus and not record.fixed:
        if not record.busy:
            ends = book.ends(record)[0]
        elif (most := book.rules(record).max_hold) is not None:
            ends = record.got_at + most
    return {
        "kernel_id": record.kernel_id,
        "user": record.user,
        "notebook": record.display,
        "kernel_name": record.name,
        "phase": str(record.phase),
        "gpus": list(record.gpus),
        "executing": record.executing,
        "since": now - record.since,
        "idle_since": None if record.idle_since is None else now - record.idle_since,
        "ends_by": None if ends == math.inf else ends - now,
        "hold_until": record.hold_until - now if record.hold_until > now else None,
        "parked_bytes": record.parked_bytes,
        "rung": str(rung),
        "rung_reason": reason,
        "unparkable": record.refused,
        "contested": record.contested,
    }
