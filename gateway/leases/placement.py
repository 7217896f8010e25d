"""On which node a kernel starts best, as it stays there: its state resumes on no other. Reads only; it must never start anything."""

from __future__ import annotations

from collections.abc import Iterable

from .book import Book

BUSY, IDLE = 0.5, 0.1  # how likely a kernel wants its GPUs at some later moment; replays of a public trace choose these


def best_node(book: Book, count: int, nodes: Iterable[str], starting: Iterable[tuple[str, int]] = ()) -> str | None:
    """Of ``nodes`` the one where a lease of ``count`` GPUs adds least to the chance that more are wanted at a time than there are; the
    first of equals. None: none has so many, or all that have are being drained.
    ``starting``: kernels that the book doesn't know yet, each its node and GPUs.

    It brings kernels with many GPUs together where they disturb those with few the least: on a node of 8, one lease of all 8 waits for
    any other, while many leases of one rarely do for each other.
    """
    least, best = 2.0, None
    open_ = [node for node in nodes if node not in book.drained and book.devices.size(node) >= count]
    chances = {node: [1.0] for node in open_}  # by how many GPUs are wanted at a time
    there = [(record.node, record.count, BUSY if record.busy else IDLE) for record in book.kernels.values()]
    for node, gpus, chance in (*there, *((*each, IDLE) for each in starting)):
        if node in chances:
            chances[node] = _with(chances[node], gpus, chance)
    for node, wanted in chances.items():
        size = book.devices.size(node)
        more = sum(wanted[: size + 1]) - sum(_with(wanted, count, IDLE)[: size + 1])
        if more < least:
            least, best = more, node
    return best


def _with(wanted: list[float], count: int, chance: float) -> list[float]:
    """The same with one kernel more, independent of the others."""
    both = [*(each * (1 - chance) for each in wanted), *([0.0] * count)]
    for at, each in enumerate(wanted):
        both[at + count] += each * chance
    return both
