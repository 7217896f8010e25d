"""One cell in a rank: loaded, run once, and what it made given back.

The notebook's names live in a ``__main__`` of their own. It must never import a framework that the user's objects or code don't use.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ...protocol.errors import ElasticError
from ...protocol.transfer import blobs as layout
from ...protocol.transfer import culprit, failures, restore, versions
from ...protocol.transfer.compare import Arena, arena_of
from ...protocol.transfer.loader import Loader
from ...protocol.transfer.pickler import Pickler
from ...protocol.transfer.source import Source, remember, texts
from ...protocol.transfer.watch import Watch, reach
from ..elastic.member import Left
from .display import Display
from .returning import Frame, pack, pickler_with
from .running import execute, find_device
from .shell import Show, in_python


class LoadError(ElasticError):
    """What the notebook sent can't be loaded in the rank; the message names the variable and the cause."""

    reason = "not_loaded"


class VersionMismatch(LoadError):
    """The rank's Python or packages can't load what the notebook's packed; the message lists both sides."""

    reason = "version_mismatch"


class Failed(NamedTuple):
    """The exception that ended a cell."""

    blobs: list[layout.Buffer]  # for the kernel's ``capture.failure``
    name: str  # class and message
    text: str  # the traceback, of the user's frames
    interrupted: bool


def load(
    blobs: Sequence[layout.Buffer], *, arena: Optional[Arena] = None, strict: bool = True, local_rank: int = 0, limit: Optional[int] = None
) -> "Cell":
    """``arena``: where ``blobs`` lie already. ``strict=False`` tries in spite of different versions. ``limit``: bytes of what goes home.
    Raises ``LoadError``."""
    header = layout.header_of(list(blobs))
    found = versions.differences(header["facts"])
    fatal = [item for item in found if item.fatal]
    if fatal and strict:
        raise VersionMismatch(
            "The ranks can't load what the notebook sent:\n"
            f"{versions.table(fatal, 'the notebook has', 'the rank')}\n"
            + (
                "You have installed that in the notebook: with --pip installed the workers get it too."
                if versions.missing(header["installed"])
                else "Use the notebook's own image for the ranks, or install the same versions there (--pip)."
            )
        )
    return Cell(header, arena or arena_of(blobs), found, local_rank, limit)


class Cell:
    """``differences``: what to tell of versions. ``missing``: packages that the user added to the notebook and that aren't here."""

    def __init__(
        self, header: dict[str, Any], arena: Arena, differences: list[versions.Difference], local_rank: int, limit: Optional[int]
    ) -> None:
        self.differences, self.missing = differences, versions.missing(header["installed"])
        self.source = Source.from_json(header["source"])
        if header.get("as_written"):
            self.source = self.source._replace(text=in_python(self.source.text))
        self._header, self._local_rank, self._limit = header, local_rank, limit
        self._device: Any = None
        self._injected: dict[str, Any] = {}
        self._display: Optional[Display] = None
        sys.path.extend(entry for entry in header["path"] if entry not in sys.path and os.path.isdir(entry))
        for name, text in header["files"].items():
            remember(name, text)
        main = types.ModuleType("__main__")
        self._launcher = sys.modules.get("__main__")  # its functions lose their globals with it
        sys.modules["__main__"] = main
        self.namespace: dict[str, Any] = vars(main)
        self._place = restore.Place(self.namespace, self.device)
        memo = self._load(arena)
        self._size = len(memo)
        self._came = {frame["name"]: self.namespace[frame["name"]] for frame in header["frames"]}
        # As the kernel does; and the namespace itself is no object of the notebook's.
        steps = set(header["buffers"])
        memo = {i: obj for i, obj in memo.items() if i not in steps and type(obj) is not tuple and obj is not self.namespace}
        self._known = {id(obj): (index, obj) for index, obj in memo.items()}
        self._watch = Watch(memo, arena, self._place.moved)

    def _load(self, arena: Arena) -> dict[int, Any]:
        loader = Loader(self._header, arena.private)
        with restore.into(self._place):
            for at, frame in enumerate(loader.frames):
                try:
                    self.namespace[frame["name"]] = loader.frame(at)
                except Exception as exc:
                    raise LoadError(f"{frame['name']} can't be loaded in the rank: {failures.named(exc)}") from exc
        return loader.memo()

    def device(self) -> Any:
        """This rank's, as torch calls it; without torch ``"cpu"``."""
        if self._device is None:
            self._device = find_device(self._local_rank)
        return self._device

    def run(self, names: dict[str, Any], show: Optional[Show] = None) -> Optional[Failed]:
        """Runs the cell with ``names`` added to its own; None if it went well. Raises ``Left`` where it goes on in another group.

        ``show(msg_type, content)`` gets what it displays, as messages to a notebook; without it their text is printed.
        """
        self._injected = dict(names)
        if "device" in self._header["reads"]:
            self._injected.setdefault("device", self.device())
        try:
            statements, last = self.source.compile()
            self._display = Display(self.namespace, show)
            self.namespace.update(self._injected)
            self._display.prepare([self.source.text, *self._header["files"].values()])
            execute(statements, last, self.namespace, self._display)
            self._display.finish()
        except Left:
            raise
        except SystemExit as exc:
            return None if exc.code in (None, 0) else self._failed(exc)
        except BaseException as exc:
            return self._failed(exc)
        return None

    def _failed(self, error: BaseException) -> Failed:
        told, frames = [], []
        for exc, word in failures.chain(error):
            name = failures.named(exc)
            told.append({"named": name, "word": word, "frames": failures.steps(exc, self.source.name)})
            frames.append(Frame({"name": name}, exc))
        packed = pack(frames, self._pickler, lambda frame, _: frame._replace(value=None), self._limit)
        text = failures.text(error, self.source.name)
        header = {
            "id": self._header["id"],
            "rank": self._injected.get("RANK"),
            "text": text,
            "chain": told,
            "files": texts({step[0] for part in told for step in part["frames"]}),
        }
        blobs = layout.join(header, packed.frames, packed.pieces, packed.pickler.buffers)
        return Failed(blobs, failures.named(error), text, isinstance(error, KeyboardInterrupt))

    def give_back(self, out: Optional[Sequence[str]] = None) -> list[layout.Buffer]:
        """What the cell assigned, and what changed inside of what it was given. ``out``: these names alone."""
        skipped: dict[str, str] = {}

        def skip(frame: Frame, error: BaseException) -> None:
            name, value = frame.told["name"], frame.value if frame.told["kind"] == "assigned" else frame.value[1]
            skipped[name] = culprit.explain(name, value, self.namespace, error)

        assigned = [Frame({"name": name, "kind": "assigned"}, value) for name, value in self._assigned(out, skipped)]
        packed = pack([*self._updates(out), *assigned], self._pickler, skip, self._limit)
        header = {
            "id": self._header["id"],
            "skipped": skipped,
            "notes": sorted(self._watch.notes),
            "touches_gpu": packed.pickler.storages.accelerated
            or (self._header["accelerated"] and any(frame.get("aspect") == "tensor" for frame in packed.frames)),
        }
        return layout.join(header, packed.frames, packed.pieces, packed.pickler.buffers)

    def _pickler(self) -> Pickler:
        return pickler_with(self.namespace, self._known, self._size)

    def _assigned(self, out: Optional[Sequence[str]], skipped: dict[str, str]) -> list[tuple[str, Any]]:
        """What names are bound to now and were not before, however the cell did it."""
        before = {**self._came, **(self._display.names if self._display else {}), **self._injected}
        missing = object()
        if out is not None:
            skipped.update((name, "the cell didn't make it") for name in out if name not in self.namespace)
        else:
            gone = [name for name in self._came if name not in self.namespace]
            skipped.update((name, "the ranks deleted it; the notebook keeps its own") for name in gone)
        return [
            (name, value)
            for name, value in list(self.namespace.items())
            if before.get(name, missing) is not value and (name in out if out is not None else not name.startswith("__"))
        ]

    def _updates(self, out: Optional[Sequence[str]]) -> list[Frame]:
        changed = list(self._watch.changed())
        if not changed:
            return []
        roots = {name: value for name, value in self._came.items() if out is None or name in out}
        reached = {name: reach([value], [self.namespace]) for name, value in roots.items()}
        frames = []
        for index, kind, aspect, memory in changed:
            obj = self._watch.objects[index]
            names = [name for name, ids in reached.items() if id(obj) in ids]
            if names or out is None:
                told = {"name": ", ".join(names) or type(obj).__name__, "names": names, "kind": "changed", "aspect": kind}
                frames.append(Frame(told, (obj, aspect.state(obj, memory))))
        return frames
