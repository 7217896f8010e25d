"""On which node a kernel starts best, as it stays there: its state resumes on no other. Reads only; it must never start anything."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from .book import Book

BUSY, IDLE = 0.5, 0.1  # how likely a kernel wants its GPUs at some later moment; replays of a public trace choose these


def best_node(
    book: Book, count: int, nodes: Iterable[str], starting: Iterable[tuple[str, int]] = (), resource: str = ""
) -> str | None:  # fmt: skip
    """Of ``nodes`` the one where a lease of ``count`` GPUs adds least to the chance that more are wanted at a time than there are; the
    first of equals. None: none has so many, or all that have are being drained.
    ``starting``: kernels that the book doesn't know yet, each its node and GPUs. ``resource``: of this kind alone, and all of ``starting``.

    It brings kernels with many GPUs together where they disturb those with few the least: on a node of 8, one lease of all 8 waits for
    any other, while many leases of one rarely do for each other.
    """
    there = {node: [] for node in nodes if node not in book.drained and book.devices.size(node, resource) >= count}
    kernels = (record for record in book.kernels.values() if record.count and record.resource == resource)
    known = ((record.node, record.count, BUSY if record.busy else IDLE) for record in kernels)
    for node, gpus, chance in (*known, *((*each, IDLE) for each in starting)):
        if node in there:
            there[node].append((gpus, chance))
    least, best = 2.0, None
    for node, leases in there.items():
        size = book.devices.size(node, resource)
        more = _enough(size, tuple(sorted(leases))) - _enough(size, tuple(sorted([*leases, (count, IDLE)])))
        if more < least:
            least, best = more, node
    return best


@lru_cache(10_000)
def _enough(size: int, leases: tuple[tuple[int, float], ...]) -> float:
    """The chance that no more than ``size`` GPUs are wanted at a time. ``leases``: GPUs of each, and how likely it wants them."""
    wanted = [1.0] + [0.0] * size  # how likely are so many
    for count, chance in leases:
        for at in range(size, -1, -1):
            wanted[at] = wanted[at] * (1 - chance) + (wanted[at - count] * chance if at >= count else 0.0)
    return sum(wanted)
