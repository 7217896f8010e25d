"""Every invariant of the book, for tests and for the broker's own doubt. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.model import Phase, Rung
from .policy import gives_up_at
from .record import WITH_GPUS

if TYPE_CHECKING:
    from .book import Book


def validate(book: Book) -> None:
    """Raises ``AssertionError`` that lists what doesn't hold. Call it between events, never within one."""
    faults: list[str] = []

    def hold(true: bool, what: str) -> None:
        if not true:
            faults.append(what)

    devices, queued = book.devices, book.queue()
    held: dict[str, int] = {}
    homes: dict[str, int] = {}
    for kernel_id, r in book.kernels.items():
        hold(r.kernel_id == kernel_id, f"{kernel_id} is filed under its own id")
        held[r.user] = held.get(r.user, 0) + len(r.gpus)
        for uuid in r.home:
            homes[uuid] = homes.get(uuid, 0) + 1
        # phases
        hold(r.phase in WITH_GPUS or not r.gpus, f"{kernel_id} is {r.phase} and has no GPU")
        hold((r.phase is Phase.WAITING) == (r in queued), f"{kernel_id} is {r.phase}: the queue is exactly the waiting kernels")
        if r.phase not in WITH_GPUS:
            hold((r.phase is Phase.WAITING) == (r.wanted and not r.denied), f"{kernel_id} waits if and only if its cells are held")
            hold(r.phase is not Phase.PARKED or r.parked, f"{kernel_id} has a parked state where it is PARKED")
            hold(r.phase is not Phase.COLD or not r.parked, f"{kernel_id} has no parked state where it is COLD")
        hold(not r.home or r.parked, f"{kernel_id} has a home only while its state is parked")
        hold(r.phase not in (Phase.HOLDING, Phase.PARKING) or not r.parked, f"{kernel_id}'s state is either on GPUs or parked")
        if r.rung is not Rung.ANYWHERE and r.home:
            hold(all(pool == set(r.home) for pool in devices.pools(r)), f"{kernel_id} is {r.rung} and resumes at home only")
        # GPUs
        hold(not r.granted or len(r.gpus) in (0, r.count), f"{kernel_id} has all of its {r.count} GPUs or none")
        hold(len(set(r.gpus)) == len(r.gpus), f"{kernel_id} has a GPU once")
        for uuid in r.gpus:
            hold(devices.owner.get(uuid) is r or r.contested, f"{kernel_id} has the right to {uuid}, or is marked contested")
            hold(not r.granted or devices.gpus[uuid].node == r.node, f"{kernel_id} has GPUs of its own node")
        hold(not r.contested or any(devices.owner[uuid] is not r for uuid in r.gpus), f"{kernel_id} is contested for a reason")
        if r.gpus:
            stuck = devices.rung(r)[0] is Rung.EXCLUSIVE or not all(map(devices.usable, r.gpus))
            hold(r.fixed == stuck, f"{kernel_id} is fixed if and only if its state or its GPUs can't be parked")
            could = r.phase is Phase.HOLDING and not r.busy and not r.fixed
            hold((r in devices.idle(r.node)) == could, f"{kernel_id} is filed as idle if and only if it could be parked")
            hold((r in devices.leaving(r.node)) == (r.phase is Phase.PARKING), f"{kernel_id} is filed as leaving while it is PARKING")
            hold((r in devices.holders(r.node)) and (r in devices.of_user(r.user)), f"{kernel_id} is among the holders")
            hold((r.idle_since is None) == r.busy or r.phase is Phase.RESUMING, f"{kernel_id} has an idle time if and only if idle")
        # moments
        due = book.timers.get(kernel_id)
        if r.phase is Phase.WAITING:
            hold(due == gives_up_at(book.rules(r), r), f"{kernel_id}'s wait ends in time")
        elif r.phase is Phase.HOLDING and r.gpus and not r.busy:
            hold(due == book.ends(r)[0], f"{kernel_id}'s idle lease ends in time")
    for uuid, owner in devices.owner.items():
        hold(book.kernels.get(owner.kernel_id) is owner and uuid in owner.gpus, f"the owner of {uuid} exists and has it")
    for uuid, gpu in devices.gpus.items():
        hold((uuid in devices.free(gpu.node)) == (uuid not in devices.owner and uuid not in devices.lost), f"{uuid} is free if it says so")
    for node in {r.node for r in book.kernels.values()}:
        for r in devices.holders(node):
            hold(r.phase in WITH_GPUS, f"{r.kernel_id} is among the holders while it is {r.phase}")
        hold(book.waiting.length(node) == sum(r.node == node for r in queued), f"the queue of {node} is as long as it says")
    for other in book.elsewhere.values():
        held[other.user] = held.get(other.user, 0) + other.gpus
    for user, gpus in held.items():
        hold(book.usage.held(user) == gpus, f"{user}'s GPUs are counted")
    for uuid, count in homes.items():
        hold(devices.homes(uuid) == count, f"those at home on {uuid} are counted")
    if faults:
        raise AssertionError("the lease book doesn't hold: " + "; ".join(faults))
