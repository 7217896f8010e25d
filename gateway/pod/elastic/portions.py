"""Which items of a whole are this rank's: every rank takes equally many, as collective calls need it.

It must never let two ranks of a round have the same item while there are others, nor depend on what only one rank knows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def portion(items: Any, start: int, rank: int, world: int, seed: int) -> Iterator[tuple[int, Any]]:
    """``(place where the round began, this rank's item)`` from place ``start`` on. In each round every rank takes one; the last round is
    filled up from the beginning. ``seed``: of the order of a ``DataLoader`` that shuffles, the same in all ranks."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(items, torch.utils.data.DataLoader) and items.batch_sampler is not None:
        return _of_loader(torch, items, start, rank, world, seed)
    if isinstance(items, Sequence) or (hasattr(items, "__len__") and hasattr(items, "__getitem__") and not hasattr(items, "keys")):
        return ((at, items[index]) for at, index in places(len(items), start, rank, world))
    return _of_iterable(items, start, rank, world)


def places(count: int, start: int, rank: int, world: int) -> Iterator[tuple[int, int]]:
    """``(place where the round began, index)`` of this rank's among ``count`` items."""
    return ((at, (at + rank) % count) for at in range(start, count, world))


def _of_iterable(items: Iterable[Any], start: int, rank: int, world: int) -> Iterator[tuple[int, Any]]:
    first: list[Any] = []  # what fills up the last round
    mine: Any = None
    count = at = place = 0
    for count, item in enumerate(items, 1):
        if len(first) < world:
            first.append(item)
        if count <= start:
            continue
        place = (count - 1 - start) % world  # in this round, which began at `at`
        at = at if place else count - 1
        if place == rank:
            mine = item
        if place == world - 1:
            yield at, mine
    if count > start and place < world - 1:
        yield at, mine if rank <= place else first[(rank - place - 1) % len(first)]


def _of_loader(torch: Any, loader: Any, start: int, rank: int, world: int, seed: int) -> Iterator[tuple[int, Any]]:
    """Its batches, of which only this rank's are loaded. All ranks shuffle alike, also after a change of their number."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator = getattr(loader.sampler, "generator", None)
        if generator is not None:
            generator.manual_seed(seed)
        batches = list(loader.batch_sampler)
    if not batches:
        return
    rounds = list(places(len(batches), start, rank, world))
    mine = torch.utils.data.DataLoader(
        loader.dataset, batch_sampler=[batches[index] for _, index in rounds], num_workers=loader.num_workers,
        collate_fn=loader.collate_fn, pin_memory=loader.pin_memory, timeout=loader.timeout, worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context, prefetch_factor=loader.prefetch_factor,
    )  # fmt: skip
    for (at, _), batch in zip(rounds, mine):
        yield at, batch
