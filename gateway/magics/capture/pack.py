"""Turns a cell and the notebook's namespace into a list of buffers. It must never copy an array, nor change anything of the user's."""

from __future__ import annotations

import os
import pickle
import sys
import types
import uuid
import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from ...protocol.transfer import blobs as layout
from ...protocol.transfer import culprit, serializer, versions
from ...protocol.transfer.pickler import Pickler
from ...protocol.transfer.source import Source, texts
from . import analyse, ipython
from .errors import CaptureError

HIDDEN = {"In", "Out", "get_ipython", "exit", "quit", "display", "__builtins__", "__name__"}
INJECTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "device")  # a rank's own, whatever the notebook calls so


@dataclass
class Options:
    header: str = ""  # the lines of the notebook's cell before ``source``: the magic's own
    number: Optional[int] = None  # the cell's, as in ``In [7]``
    include: tuple[str, ...] = ()  # ``--in``: names that are sent though the cell doesn't seem to read them
    nothing: bool = False  # ``--no-in``
    own: tuple[str, ...] = INJECTED  # names that the ranks bring themselves
    warn_bytes: int = 1 << 30  # a name of this size is told


class Item(NamedTuple):
    name: str
    type: str
    bytes: int
    kind: str  # data, array, tensor, model, function, class, module


@dataclass(eq=False)
class Capsule:
    id: str
    blobs: list[layout.Buffer]
    listing: list[Item]
    warnings: list[str]
    installed: list[dict[str, str]]  # what the user added to the image: name, version, spec (empty if pip can't get it)
    memo: list[Any] = field(repr=False, default_factory=list)  # what was packed, by index; steps of packing are None

    @property
    def bytes(self) -> int:
        return sum(memoryview(blob).nbytes for blob in self.blobs)


sent: "weakref.WeakValueDictionary[str, Capsule]" = weakref.WeakValueDictionary()


def pack(source: str, namespace: dict[str, Any], options: Optional[Options] = None) -> Capsule:
    """Raises ``SyntaxError`` with the notebook's line, or ``CaptureError``."""
    options = options or Options()
    old = serializer.too_old()
    if old:
        raise CaptureError(old)
    shell = ipython.shell()
    code = _source(source, options, shell)
    ipython.show_as_cell(code, options.number, shell)
    tree = code.parse()
    unknown = ipython.unknown_magics(tree, shell)
    if unknown:
        raise CaptureError(
            f"{' and '.join(unknown)} can't run in the ranks: they belong to this kernel. "
            "Take them out of the cell, or run them in one of their own."
        )
    names = analyse.names(tree, code.flags)
    names.reads.update(dict.fromkeys(ipython.names_in_magics(tree)))
    return _Packing(namespace, options, names).capsule(code)


def _source(text: str, options: Options, shell: Any) -> Source:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    before = options.header.count("\n") + 1 if options.header else 0
    blank = len(lines) - len(lines.lstrip("\n")) if lines.strip() else 0  # IPython drops these
    python = ipython.to_python(lines.lstrip("\n"), shell)
    name = f"<cell [{options.number if options.number is not None else '*'}]>"
    shown = f"{options.header}\n{lines}" if options.header else lines
    return Source("\n" * (before + blank) + python, shown, name, ipython.flags(shell))


class _Packing:
    """One attempt after another: a name that can't be packed, and that the cell assigns itself, is left out."""

    def __init__(self, namespace: dict[str, Any], options: Options, names: analyse.Names) -> None:
        self._namespace, self._options, self._names = namespace, options, names
        self._warnings: list[str] = []
        self._left_out: set[str] = set()
        missing = [name for name in options.include if name not in namespace]
        if missing:
            raise CaptureError(f"--in names {', '.join(missing)}, and the notebook has no such variable: check the spelling.")
        wanted = [*options.include, *(() if options.nothing else names.reads)]
        self._first = list(dict.fromkeys(name for name in wanted if self._is_users(name)))

    def _is_users(self, name: str) -> bool:
        if name not in self._namespace or name in self._options.own:
            return False
        if name in HIDDEN or (name.startswith("_") and name.strip("_").isdigit()) or name in ("_", "__", "___"):
            return name in self._options.include
        return True

    def capsule(self, code: Source) -> Capsule:
        while True:
            try:
                return self._try(code)
            except _Leave as leave:
                self._left_out.add(leave.name)
                self._warnings.append(f"{leave} It isn't sent; the cell assigns {leave.name} itself.")

    def _try(self, code: Source) -> Capsule:
        pickler = Pickler(self._namespace)
        frames: list[dict[str, Any]] = []
        pieces, listing = [], []
        queue = [name for name in self._first if name not in self._left_out]
        for name in queue:  # grows meanwhile: functions need further names
            value = self._namespace[name]
            try:
                part, size = pickler.frame(value)
            except Exception as exc:
                self._fail(name, value, exc)
            pieces.append(part)
            frames.append({"name": name, "buffers": len(pickler.buffers)})
            listing.append(Item(name, _type(value), size, _kind(value)))
            queue.extend(needed for needed in pickler.needed if needed not in queue and self._is_users(needed))
        installed = versions.installed_since(versions.container_started())
        objects = pickler.objects()
        header = {
            "id": uuid.uuid4().hex,
            "source": code.to_json(),
            "facts": versions.facts({*pickler.packages, *(item.type.partition(".")[0] for item in listing)}),
            "files": texts(pickler.files),
            "path": [entry or os.getcwd() for entry in sys.path],  # "", the folder of the notebook, is where its own modules lie
            "folder": os.getcwd(),
            "reads": [name for name in self._names.reads if name in self._options.own],
            "accelerated": pickler.storages.accelerated,
            "installed": installed,
            "buffers": [index for index, obj in objects.values() if type(obj) is pickle.PickleBuffer],
        }
        blobs = layout.join(header, frames, pieces, pickler.buffers)
        warnings = [*self._warnings, *self._big(listing), *_beside(pickler.packages)]
        capsule = Capsule(header["id"], blobs, listing, warnings, installed, memo_of(objects))
        sent[capsule.id] = capsule
        return capsule

    def _fail(self, name: str, value: Any, error: Exception) -> None:
        text = culprit.explain(name, value, self._namespace, error)
        if name in self._names.writes and name not in self._options.include:
            raise _Leave(name, f"{text}.") from None
        raise CaptureError(f"{text}. Nothing was started.") from error

    def _big(self, listing: list[Item]) -> list[str]:
        return [
            f"{item.name} has {item.bytes / 1e9:.1f} GB, and every rank gets it: a path to a file that the ranks can read is quicker."
            for item in listing
            if item.bytes >= self._options.warn_bytes
        ]


class _Leave(Exception):
    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def memo_of(objects: dict[int, tuple[int, Any]]) -> list[Any]:
    """What was packed, by index. Tuples and buffers are left out: they are steps of packing, and may hold copies."""
    known: list[Any] = [None] * len(objects)
    for index, obj in objects.values():
        if type(obj) not in (tuple, pickle.PickleBuffer):
            known[index] = obj
    return known


def _type(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _kind(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    if callable(value) and isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return "function"
    bases = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(value).__mro__}
    for base, kind in (("torch.Module", "model"), ("torch.Tensor", "tensor"), ("numpy.ndarray", "array")):
        if base in bases:
            return kind
    return "data"


def _beside(packages: set[str]) -> list[str]:
    """Modules that lie in a folder of the user's, as files beside the notebook do."""
    found = []
    for name in sorted(packages - versions.STANDARD):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and not versions.is_installed(file) and not file.startswith(str(serializer.VENDOR)):  # that comes with our own code
            found.append(f"{name} is a file of yours ({file}): the ranks import it only if they see that folder too.")
    return found
