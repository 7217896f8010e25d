"""What has to live on when a burst changes its number of workers: ``elastic.State``, its loops and its ``commit``.

::

    from gateway import elastic
    state = elastic.State(model=model, optimizer=optimizer, losses=[])
    for epoch in state.range("epoch", 10):
        for batch in state.shard("batch", loader):
            ...
            state.commit()

It must never lose a step that was committed when the workers change by intention, and never do one twice.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable, Optional

from . import saving
from .loops import Loops
from .member import here
from .portions import portion


class State:
    """Whatever is named here, or set as an attribute later, is saved; where the cell starts anew it comes back, here in this call.

    Modules, optimizers, schedulers and whatever else has ``state_dict`` and ``load_state_dict`` are filled in place, as are lists,
    dictionaries, sets, tensors and arrays; anything else must be picklable. Rank 0's is saved, and every rank gets it: what differs by
    rank has no place here. ``on_resize(before, now)`` is called after a change of the number of workers, to change a learning rate, say.
    """

    def __init__(self, *, on_resize: Optional[Callable[[int, int], None]] = None, **values: Any) -> None:
        member = here()
        self._loops = Loops({})
        for name, value in values.items():
            if name.startswith("_") or hasattr(State, name):
                raise TypeError(f"{name!r} can't be the name of something in a State: choose another.")
            setattr(self, name, value)
        if member is not None and member.start is not None:
            saved = saving.load(member.start)
            for name, (kind, value) in saved["values"].items():
                setattr(self, name, saving.fill(getattr(self, name, None), kind, value))
            self._loops = Loops(saved["loops"])
            if on_resize is not None and saved["world"] != member.world:
                on_resize(saved["world"], member.world)

    def range(self, name: str, *bounds: int) -> Iterator[int]:
        """As ``range(*bounds)``, from where the loop of this name was at the last commit."""
        numbers = range(*bounds)
        start = self._loops.enter(name)
        try:
            for at in range(start, len(numbers)):
                self._loops.step(name, at, at + 1)
                yield numbers[at]
        finally:
            self._loops.leave(name)

    def shard(self, name: str, items: Iterable[Any]) -> Iterator[Any]:
        """This rank's part of ``items``, from where the loop of this name was at the last commit: a sequence, a ``DataLoader``, or
        anything that yields the same in the same order in all ranks.

        In each round every rank takes one item, and the last round is filled up from the beginning. A ``DataLoader`` that shuffles does
        so alike in all ranks, and anew in each iteration of the loops around.
        """
        member = here()
        rank, world = (member.rank, member.world) if member is not None else (0, 1)
        seed = zlib.crc32(repr(self._loops.around()).encode())
        start = self._loops.enter(name)
        try:
            for at, item in portion(items, start, rank, world, seed):
                self._loops.step(name, at, at + world)
                yield item
        finally:
            self._loops.leave(name)

    def commit(self) -> None:
        """All until here is done, of the innermost loop this iteration.

        It costs microseconds, but for the saves: the first time, when the number of workers is to change, and every so often
        (``--save-every``). Call it in every rank at the same steps, as collective calls are.
        """
        self._loops.commit()
        member = here()
        if member is not None:
            member.commit(lambda path: self._save(path, member.world), self._where())

    def _save(self, path: Path, world: int) -> None:
        values = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        saving.save(path, {"values": saving.contents(values), "loops": self._loops.committed, "world": world})

    def _where(self) -> str:
        return " · ".join(f"{name} {at}" for name, at in self._loops.committed.items())
