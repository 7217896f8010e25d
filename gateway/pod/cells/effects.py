"""What code does to names: looks them up, binds them, puts one thing into another. The lower half of the walk through a cell.

Everything here only adds to what may be; it must never decide that something didn't happen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Optional

from . import known
from .names import ATOM, CODE, DATA, DISPLAYED, LIBRARIES, MODULE, OBJECT, Names, Value, plain
from .scope import Frame, root_of
from .source import Special

CLEAN = Value(ATOM)
THING = Value(OBJECT)
_NOTHING: frozenset[str] = frozenset()


class Effects:
    """Afterwards ``why`` is the first reason to wait for a GPU, ``dominion`` a reason to trust no name any more."""

    def __init__(self, names: Names, specials: dict[str, Special]) -> None:
        self.names, self.specials = names, specials
        self.why: Optional[str] = None
        self.dominion: Optional[str] = None
        self.strangers: set[str] = set()  # unvetted modules that are imported
        self.final: dict[str, Value] = {}  # what top-level names hold if every statement has run
        self._events = 0
        self._told: set[str] = set()
        self._frames: list[Frame] = []
        self._read: Optional[set[str]] = None  # what the function body being read leads to; None: code that runs now
        self._writes: set[str] = set()  # global names that it binds
        self._outside = 0  # how many frames lie around that body
        self._blocks = 0
        self._changed: set[str] = set()  # names, in this round of a loop

    def event(self, why: str, dominion: bool = False) -> None:
        """What runs here may use a GPU (and rebind any name)."""
        if self._read is not None:
            self._read.add(("!!" if dominion else "!") + why)
            return
        self._events += 1
        self.why = self.why or why
        if dominion:
            self.dominion = self.dominion or why

    def tainted(self, why: str, dominion: bool = False, came: Optional[str] = None) -> Value:
        """An event, and the value that comes of it."""
        self.event(why, dominion)
        return Value(OBJECT, came or f"came from code that {why}")

    # what is put where

    def spoil(self, deps: Iterable[str], why: str, planted: bool = False) -> None:
        """Something tainted went into what ``deps`` lead to; ``planted``: put there on purpose, also into arrays and frames."""
        for dep in self.names.reach(deps, through_data=planted):
            name = plain(dep)
            entry = self.names.entries.get(name)
            stored = dep.endswith(".=")
            if stored and (name == LIBRARIES or (entry is not None and entry.kind == MODULE)):
                self.names.spoil(LIBRARIES, why)
            if entry is not None and (stored or entry.kind == OBJECT or (planted and entry.kind == DATA)):
                self._forget(name)
                self.names.spoil(name, why)

    def link(self, names: Iterable[str], deps: frozenset[str]) -> None:
        """What ``names`` hold leads to ``deps`` from now on."""
        for dep in names:
            name = plain(dep)
            self._forget(name)
            self.names.link(name, deps)

    def plant(self, base: Value, value: Value, target: ast.expr) -> None:
        """``value`` is put into ``base``, which ``target`` is an item or attribute of."""
        if self._read is not None:
            self._mark_store(target)
        elif base.kind == MODULE:
            self.keep(value)
        elif value.why is not None:
            self.spoil(base.deps, value.why, planted=True)
            for dep in base.deps:  # a function or class among them, too
                self._forget(plain(dep))
                self.names.spoil(plain(dep), value.why)
        elif value.deps:
            self.link(base.deps, value.deps)

    def keep(self, value: Value) -> None:
        """A library keeps ``value``, and may use it whenever it is used itself."""
        if value.why is not None:
            self.names.spoil(LIBRARIES, value.why)
        elif value.deps:
            self.names.link(LIBRARIES, value.deps)

    def _mark_store(self, target: ast.expr) -> None:
        """The function being read puts something into what a name outside of it holds."""
        root = root_of(target)
        if root is not None and self._read is not None:
            local = self.local(root)
            if local is None:
                self._read.add(f"{root}.=")
            elif local.kind == MODULE:
                self._read.add(f"{LIBRARIES}.=")

    def _forget(self, name: str) -> None:
        self.final.pop(name, None)
        self._changed.add(name)

    # names

    def load(self, name: str, attribute: Optional[str] = None) -> Value:
        """What ``name`` holds, where it is used (for its ``attribute``)."""
        special = self.specials.get(name)
        if special is not None:
            return CLEAN if special.why is None else self.tainted(special.why, special.dominion)
        local = self.local(name)
        if local is not None:
            return self._guarded(local, name, attribute)
        entry = self.names.entries.get(name)
        if self._read is not None:
            self._read.add(f"{name}.{attribute}" if attribute else name)
            return Value(OBJECT, None, frozenset(), entry.module if entry and entry.kind == MODULE else None)
        guarded = entry is not None and entry.module in known.GUARDED
        why = self.names.taint(f"{name}.{attribute}" if guarded and attribute else name)
        if why is not None:
            text = f"uses `{name}`" if why == f"came from `{name}`" else f"uses `{name}`, which {why}"
            if entry is None and why == f"is `{name}`":
                text = f"uses `{name}`"
            elif guarded and entry is not None and entry.why is None:
                text = why
            self._tell(name, text, guarded and entry is not None and known.dominates(entry.module, attribute))
        if entry is None:
            if known.builtin(name):
                return CLEAN
            return Value(OBJECT, why, frozenset([DISPLAYED]) if known.history(name) else frozenset())
        return Value(entry.kind, why, frozenset([name]) if entry.kind >= DATA else frozenset(), entry.module)

    def _tell(self, name: str, why: str, dominion: bool) -> None:
        if name not in self._told or self.why is None:
            self._told.add(name)
            dominion = dominion or self.names.dominion(name)
        self.event(why, dominion)

    def local(self, name: str) -> Optional[Value]:
        """What a name of an enclosing function, class body or comprehension holds; None: it is a global one."""
        inside = False  # of a function, from where class bodies can't be seen
        for at in range(len(self._frames) - 1, -1, -1):
            frame = self._frames[at]
            if frame.kind == "class" and inside:
                continue
            if name in frame.globals:
                return None
            value = frame.names.get(name)
            if value is not None:
                if self._read is not None and at < self._outside:
                    self._read |= value.deps
                    self._read |= {f"!{value.why}"} if value.why else set()
                return value
            inside = inside or frame.kind == "function"
        return None

    def unbound(self, name: str) -> bool:
        """Nobody has bound it so far: if it is a builtin's name, it means the builtin."""
        return self.local(name) is None and name not in self.names.entries

    def module_root(self, node: ast.expr) -> bool:
        """``node`` is a chain that begins at a vetted module."""
        root = root_of(node)
        if root is None:
            return False
        local, entry = self.local(root), self.names.entries.get(root)
        return local.kind == MODULE if local is not None else entry is not None and entry.kind == MODULE

    def _guarded(self, value: Value, name: str, attribute: Optional[str]) -> Value:
        if value.kind != MODULE or value.module not in known.GUARDED:
            return value
        bad = known.guarded(value.module, attribute) if attribute else known.GUARDED[value.module][1]
        if bad is None:
            return value
        return self.tainted(f"uses `{name}.{attribute}`" if attribute else f"hands on the module `{value.module}`", bad)

    def bind(self, name: str, value: Value) -> None:
        """An assignment to a name, wherever it lives."""
        frame = next((frame for frame in reversed(self._frames) if frame.kind != "comprehension"), None)
        if frame is not None and name not in frame.globals:
            old = frame.names.get(name)
            if value.kind == MODULE:
                frame.names[name] = value
            elif frame.kind == "class":
                frame.names[name] = value if old is None else join([old, value])
            return
        if self._read is not None:
            self._writes.add(name)
            self._read.add(f"{name}.=")
            return
        entry = self.names.entries.get(name)
        if entry is not None and not known.history(name) and (entry.why is not None or entry.kind in (DATA, OBJECT)):
            why = self.names.taint(name)
            if why is not None:
                self.event(f"replaces `{name}`, which {why}: what is dropped may free GPU memory")
        self.names.bind(name, value)
        self._forget(name)
        if not self._blocks and value.why is None:
            self.final[name] = value

    def handed_on(self, code: Value) -> Value:
        """A new function goes to code that may run it at once: it is tainted if what it would look up now is."""
        for dep in code.deps if self._read is None else ():
            why = self.names.taint(dep)
            if why is not None:
                why = why if dep[0] == "!" else f"uses `{plain(dep)}`, which {why}"
                self.event(f"hands on a function that {why}", any(map(self.names.dominion, code.deps)))
                return code._replace(why=code.why or f"came from a function that {why}")
        return code


def join(values: list[Value]) -> Value:
    """What may be any of ``values``, or be made of them."""
    if len(values) == 1:
        return values[0]
    kind, why, deps = ATOM, None, _NOTHING
    for other, reason, leads, _ in values:
        if other > kind:
            kind = other
        if why is None:
            why = reason
        if leads:
            deps = deps | leads if deps else leads
        if other == MODULE:  # a module among other things can be found again there
            kind, deps = OBJECT, deps | {f"{LIBRARIES}.="}
    return Value(kind, why, deps)


def shared(value: Value) -> Value:
    """A value under one more name: of a function too, either name may be the last to let go of it."""
    return value._replace(kind=OBJECT) if value.kind == CODE else value


def element(value: Value) -> Value:
    """One item of an iterable."""
    return Value(OBJECT if value.kind in (CODE, MODULE) else value.kind, value.why, value.deps)
