"""Brings home what a rank made of the names: new ones are assigned, changed objects are changed in place, so that aliases stay true.

A name that can't be brought home is told and costs the others nothing. Only ever called on results of the user's own cell: loading
runs code.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Union

from ...protocol.transfer import failures, restore
from ...protocol.transfer.aspect import CannotApply
from ...protocol.transfer.blobs import Buffer, header_of
from ...protocol.transfer.changes import ASPECTS
from ...protocol.transfer.loader import Loader
from ...protocol.transfer.source import remember
from .errors import CaptureError
from .pack import Capsule
from .pack import sent as live

Sent = Union[Capsule, Sequence[Buffer], None]
CODE = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType)


@dataclass
class Report:
    """What came home, by name."""

    assigned: list[str] = field(default_factory=list)
    mutated: list[str] = field(default_factory=list)  # the same objects as before, with new contents
    skipped: dict[str, str] = field(default_factory=dict)  # and why
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{word}: {', '.join(names)}" for word, names in (("assigned", self.assigned), ("changed", self.mutated)) if names]
        parts += [f"{name} stayed in the ranks: {reason}" for name, reason in self.skipped.items()]
        return "\n".join([*parts, *self.notes])


def needs_gpu(blobs: Sequence[Buffer]) -> bool:
    """Whether ``take`` would touch a GPU of this kernel: ask before, while CUDA state is parked such a call waits for ever."""
    return bool(header_of(list(blobs)).get("touches_gpu"))


def take(blobs: Sequence[Buffer], namespace: dict[str, Any], sent: Sent = None) -> Report:
    """Raises ``CaptureError`` if this isn't the kernel that sent the cell and ``sent`` isn't given."""
    return _take(blobs, namespace, sent, namespace)


def take_each(results: dict[int, Sequence[Buffer]], namespace: dict[str, Any], sent: Sent = None) -> Report:
    """Results of several ranks, by rank: each assigned name becomes a list of what the ranks have, in their order.

    An object can only become what one rank made of it: changes are taken from the first. So are modules, classes and functions: a cell
    that imports or defines something leaves the notebook what any cell would.
    """
    whole = Report()
    lists: dict[str, list[Any]] = {}
    for at, rank in enumerate(sorted(results)):
        made: dict[str, Any] = {}
        report = _take(results[rank], namespace, sent, made, changes=at == 0)
        for name, value in made.items():
            lists.setdefault(name, []).append(value)
        whole.mutated += report.mutated
        whole.skipped.update((f"{name} (rank {rank})", reason) for name, reason in report.skipped.items())
        whole.notes += [note for note in report.notes if note not in whole.notes]
    namespace.update((name, values[0] if isinstance(values[0], CODE) else values) for name, values in lists.items())
    whole.assigned = list(lists)
    return whole


def _take(blobs: Sequence[Buffer], namespace: dict[str, Any], sent: Sent, made: dict[str, Any], changes: bool = True) -> Report:
    """``made`` gets the assigned names."""
    header = header_of(list(blobs))
    report = Report(skipped=dict(header["skipped"]), notes=list(header["notes"]))
    with _place(header, namespace, sent) as (memo, names):
        _Taking(Loader(header, _writable(blobs), memo), namespace, report, names, made).all(changes)
    return report


def failure(blobs: Sequence[Buffer], namespace: dict[str, Any], sent: Sent = None) -> BaseException:
    """The exception that ended a rank's cell, to be raised: its own class where it can be loaded here, with the cell's lines."""
    header = header_of(list(blobs))
    for name, text in header["files"].items():
        remember(name, text)
    parts: list[tuple[BaseException, str, Any]] = []
    try:
        with _place(header, namespace, sent) as (memo, _):
            loader = Loader(header, _writable(blobs), memo)
            for at, told in enumerate(header["chain"]):
                parts.append((_load_error(loader, at, told["named"]), told["word"], told["frames"]))
    except CaptureError:
        parts = [(failures.RankError(told["named"]), told["word"], told["frames"]) for told in header["chain"]]
    error = failures.linked(parts)
    error.rank, error.rank_traceback = header["rank"], header["text"]  # type: ignore[attr-defined]
    return error


def _load_error(loader: Loader, at: int, named: str) -> BaseException:
    try:
        error = loader.frame(at)
        if isinstance(error, BaseException):
            return error
    except (Exception, SystemExit):
        pass
    return failures.RankError(named)


@contextmanager
def _place(header: dict[str, Any], namespace: dict[str, Any], sent: Sent) -> Iterator[tuple[list[Any], dict[int, str]]]:
    """Loads into the notebook. Yields what was sent, by index, and names that have to be bound because the objects are new here."""
    names: dict[int, str] = {}
    with restore.into(restore.Place(namespace, _device)):
        if sent is None:
            sent = live.get(header["id"])
        if sent is None:
            raise CaptureError("This cell was sent by a kernel that is gone. Hand over what was sent as well, to load its results here.")
        if isinstance(sent, Capsule):
            yield sent.memo, names
            return
        first = header_of(list(sent))
        if first["id"] != header["id"]:
            raise CaptureError("These results belong to another cell than what was handed over as sent.")
        loader = Loader(first, _writable(sent))
        for at, frame in enumerate(loader.frames):
            names[id(loader.frame(at))] = frame["name"]
        known = loader.memo()
        yield [known.get(index) if type(known.get(index)) is not tuple else None for index in range(len(known))], names


def _device() -> Any:
    """Where tensors of an accelerator go: to this kernel's, if it uses one already."""
    import torch

    return "cuda" if torch.cuda.is_initialized() else "cpu"


def _writable(blobs: Sequence[Buffer]) -> list[Buffer]:
    """New arrays live in these buffers, and have to be writable; the header and the pickles needn't be."""
    pickles = 1 + sum(frame["pieces"] for frame in header_of(list(blobs))["frames"])
    return [blob if at < pickles or not memoryview(blob).readonly else bytearray(blob) for at, blob in enumerate(blobs)]


class _Taking:
    def __init__(self, loader: Loader, namespace: dict[str, Any], report: Report, names: dict[int, str], made: dict[str, Any]) -> None:
        self._loader, self._namespace, self._report, self._names, self._made = loader, namespace, report, names, made

    def all(self, changes: bool) -> None:
        for at, frame in enumerate(self._loader.frames):
            try:
                value = self._loader.frame(at)
                if changes or frame["kind"] == "assigned":
                    self._one(frame, value)
            except (Exception, SystemExit) as exc:
                self._report.skipped[frame["name"]] = f"it could not be loaded in the notebook: {failures.named(exc)}"

    def _one(self, frame: dict[str, Any], value: Any) -> None:
        name = frame["name"]
        if frame["kind"] == "assigned":
            self._made[name] = value
            self._report.assigned.append(name)
            return
        obj, state = value
        try:
            ASPECTS[frame["aspect"]].apply(obj, state)
        except CannotApply as exc:
            self._rebind(name, obj, exc.value)
            return
        for name in frame["names"]:
            if name not in self._report.mutated:
                self._report.mutated.append(name)
        if id(obj) in self._names:
            self._namespace[self._names[id(obj)]] = obj

    def _rebind(self, name: str, old: Any, new: Any) -> None:
        """The type can't be changed in place: whoever is bound to the old object by name gets the new one."""
        bound = [known for known, value in self._namespace.items() if value is old] or [self._names.get(id(old), "")]
        for known in filter(None, bound):
            self._namespace[known] = new
            self._report.assigned.append(known)
        if not any(bound):
            self._report.skipped[name] = f"a {type(old).__name__} inside of it changed, which can't be changed in place"
