"""What goes home from a rank: frames, each of one name, with references instead of copies for whatever came from the notebook.

One object that can't be packed costs its own name and nothing else. It must never change what the cell made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

from ...protocol.transfer import blobs as layout
from ...protocol.transfer.pickler import Pickler

Known = dict[int, tuple[int, Any]]  # by id: the index that the kernel knows it by, and the object


class Frame(NamedTuple):
    told: dict[str, Any]  # what the header says of it
    value: Any


class Packed(NamedTuple):
    frames: list[dict[str, Any]]
    pieces: list[list[layout.Buffer]]
    pickler: Pickler


def pickler_with(namespace: dict[str, Any], known: Known, size: int) -> Pickler:
    """One that refers to ``known`` objects by index, and counts new ones from ``size`` on."""
    pickler = Pickler(namespace)
    fill = [object() for _ in range(size - len(known))]
    pickler.memo = {**known, **{id(obj): (size, obj) for obj in fill}}
    return pickler


def pack(
    frames: Sequence[Frame],
    make: Callable[[], Pickler],
    replace: Callable[[Frame, BaseException], Optional[Frame]],
    limit: Optional[int] = None,
) -> Packed:
    """``replace`` says what stands for a frame that can't be packed, None: nothing. ``limit``: bytes in all, else ``TooBig``."""
    frames = list(frames)
    while True:
        pickler, packed, size = make(), Packed([], [], None), 0  # type: ignore[arg-type]
        for at, frame in enumerate(frames):
            try:
                pieces, more = pickler.frame(frame.value)
                size += more
                if limit is not None and size > limit:
                    raise TooBig(more, limit)
            except (Exception, SystemExit) as exc:
                other = replace(frame, exc)
                frames[at : at + 1] = [other] if other else []
                break  # the pickler remembers objects that it has not written whole: begin again
            packed.pieces.append(pieces)
            packed.frames.append({**frame.told, "buffers": len(pickler.buffers)})
        else:
            return packed._replace(pickler=pickler)


class TooBig(Exception):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"with its {size / 1e6:.0f} MB the results would have more than {limit / 1e6:.0f} MB: "
            "write it to a file that the notebook can read"
        )
