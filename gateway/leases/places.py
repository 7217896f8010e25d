"""What waiting kernels' notebooks are shown of the queue. It must never repeat what was told last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from .devices import Devices
from .events import Place
from .quota import Room
from .record import KernelRecord
from .refusal import holders, over

NEWS = 1.0  # seconds by which an expected end must move to be told


def changed(
    waits: Mapping[KernelRecord, float], rooms: Mapping[KernelRecord, Room], devices: Devices, resume_cost: float, now: float
) -> list[Place]:  # fmt: skip
    """The places to tell, and the records note that they are told. ``waits``: the node's waiters in order, with the moment at
    which each will get its GPUs (infinite: can't be known). ``rooms``: of those that their user's quota keeps waiting."""
    told = []
    who: dict[tuple[frozenset[str], ...], tuple[str, ...]] = {}
    lengths, places = Counter(record.resource for record in waits), Counter[str]()  # who waits for another kind is in nobody's way
    for record, at in waits.items():
        places[record.resource] += 1
        room = rooms.get(record)
        if room is not None:
            names, quota = tuple(each.label for each in room.holders), over(room)
        else:
            pools = tuple(devices.pools(record))
            if pools not in who:
                who[pools] = holders(record, devices)
            names, quota = who[pools], ""
        ready = at + resume_cost
        place = Place(
            record.kernel_id, places[record.resource], lengths[record.resource], names, None if ready == math.inf else ready - now, quota
        )  # fmt: skip
        last = record.place
        if (
            last is None
            or (last.position, last.of, last.holders, last.quota) != (place.position, place.of, place.holders, place.quota)
            or (last.expected is None) != (place.expected is None)
            or (place.expected is not None and abs(ready - record.place_at) > NEWS)
        ):
            record.place, record.place_at = place, ready
            told.append(place)
    return told
