"""The session's symbol table: what each name may hold, and which names its value may lead to.

A name is tainted when its value may reach a GPU: because it came from something that can (``why``), or because something it leads to
(``deps``) is tainted. Deps are names, looked up when asked, as Python does when a function runs. It keeps no text of cells, and must
never lose a taint but through ``replace``.

Besides plain names, deps may be ``name.attribute`` (of a guarded module), ``name(`` (a builtin whose call was checked), ``name.=``
(something is stored into what it holds), ``!reason`` (runs code that can't be followed) and ``!!reason`` (such that may rebind any name).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Optional

from . import known

# What a name holds, in the order in which they win when it may be either.
ATOM = 0  # a number, a text: nothing can be planted in it, and it leads nowhere
MODULE = 1  # a vetted module or a part of one
DATA = 2  # a value of a vetted library (array, frame, figure): code that is merely given it plants nothing in it
CODE = 3  # a plain function: what it holds is found when it runs
OBJECT = 4  # anything else

PATIENCE = 500_000  # steps from name to name for one cell, a fraction of a second; an everyday cell takes some hundreds

LIBRARIES = "<libraries>"  # all vetted modules as one: they call each other, so a callback in one taints all
DISPLAYED = "Out"  # what cells have displayed, under all its names


class TooMuch(Exception):
    """The names of this session hang together in too many ways to follow."""


class Value(NamedTuple):
    """What an expression may give: ``why`` it is tainted, the names it leads to, the vetted ``module`` that it is (part of)."""

    kind: int
    why: Optional[str] = None
    deps: frozenset[str] = frozenset()
    module: Optional[str] = None


class Entry:
    """What is known of one name."""

    __slots__ = ("deps", "kind", "module", "serial", "why")

    def __init__(self, kind: int, why: Optional[str], deps: set[str], module: Optional[str], serial: int) -> None:
        self.kind, self.why, self.deps, self.module, self.serial = kind, why, deps, module, serial

    def copy(self) -> Entry:
        return Entry(self.kind, self.why, set(self.deps), self.module, self.serial)


class Names:
    """Grows by ``bind``, ``link`` and ``spoil``, each of which only ever adds to what a name may hold."""

    def __init__(self, serial: int = 0) -> None:
        self.entries: dict[str, Entry] = {}
        self.star = False  # a vetted module was imported with *: unbound names may be its
        self.serial = serial  # of the cell that is being learned
        self.changes = 0
        self.patience = PATIENCE  # what is left of it for the cell at hand
        self._clean: set[str] = set()  # known to be untainted as of now
        self._tame: set[str] = set()  # known not to lead to dominion as of now
        self._before: Optional[dict[str, Optional[Entry]]] = None  # entries as they were, during a trial

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Nothing that is learned inside remains."""
        self._before, star, self.patience = {}, self.star, PATIENCE
        try:
            yield
        finally:
            for name, entry in self._before.items():
                if entry is None:
                    del self.entries[name]
                else:
                    self.entries[name] = entry
            if self._before:
                self._doubt()
            self._before, self.star = None, star

    def bind(self, name: str, value: Value) -> None:
        """``name`` may now hold ``value``, or still what it held."""
        entry = self.entries.get(name)
        if entry is None:
            self._save(name, None)
            self.entries[name] = Entry(value.kind, value.why, set(value.deps), value.module, self.serial)
            if name in self._clean or name in self._tame:
                self._doubt()  # it was a builtin, and others may lead to it
            self.changes += 1
            return
        kind = entry.kind if entry.kind == value.kind else max(entry.kind, value.kind)
        if entry.kind != value.kind and CODE in (entry.kind, value.kind) and DATA in (entry.kind, value.kind):
            kind = OBJECT
        module = entry.module if value.module is None or entry.module in known.GUARDED else value.module
        if kind != entry.kind or module != entry.module:
            self._save(name, entry)
            entry = self.entries[name]
            entry.kind, entry.module = kind, module
            self._doubt()
            self.changes += 1
        self._add(name, value.why, value.deps)

    def link(self, name: str, deps: Iterable[str]) -> None:
        """What ``name`` holds may now lead to ``deps`` too."""
        if name in self.entries:
            self._add(name, None, deps)
        elif name == LIBRARIES:
            self.bind(name, Value(OBJECT, None, frozenset(deps)))

    def spoil(self, name: str, why: str) -> None:
        """Something tainted may have been put into what ``name`` holds."""
        if name in self.entries:
            self._add(name, why, ())
        elif name == LIBRARIES:
            self.bind(name, Value(OBJECT, why))

    def replace(self, name: str, value: Value) -> None:
        """``name`` holds ``value`` and nothing else. What shared its old value keeps the taint of that."""
        entry = self.entries[name]
        old = self.taint(name)
        if old is not None:
            for other in self.entries.values():
                if name in other.deps and other.kind != CODE and other is not entry and other.why is None:
                    other.why = old
        self.entries[name] = Entry(value.kind, value.why, set(value.deps), value.module, entry.serial)
        self._doubt()

    def taint(self, name: str) -> Optional[str]:
        """Why ``name`` may reach a GPU, as in "`name`, which ..."; None: it can't."""
        if name in self._clean:
            return None
        seen, stack = {name}, [name]
        while stack:
            current = stack.pop()
            why = self._own(current)
            if why is not None:
                return why if current == name or current.startswith("!") else f"uses `{plain(current)}`"
            for dep in self._leads(current):
                if dep not in seen and dep not in self._clean:
                    seen.add(dep)
                    stack.append(dep)
        self._clean |= seen
        self._spend(len(seen))
        return None

    def reach(self, deps: Iterable[str], through_data: bool = True) -> set[str]:
        """All that ``deps`` lead to, themselves included."""
        seen = set(deps)
        stack = list(seen)
        while stack:
            for dep in self._leads(stack.pop(), through_data):
                if dep not in seen:
                    seen.add(dep)
                    stack.append(dep)
        self._spend(len(seen))
        return seen

    def dominion(self, name: str) -> bool:
        """Whether ``name`` leads to what could rebind any name."""
        seen, stack = {name}, [name]
        while stack:
            current = stack.pop()
            if current in self._tame:
                continue
            if self._dominates(current):
                return True
            for dep in self._leads(current):
                if dep not in seen:
                    seen.add(dep)
                    stack.append(dep)
        self._tame |= seen
        self._spend(len(seen))
        return False

    def _dominates(self, dep: str) -> bool:
        entry = self.entries.get(plain(dep))
        if entry is None:
            return dep.startswith("!!") or dep in known.DOMINION
        return entry.kind == MODULE and not dep.endswith(".=") and known.dominates(entry.module, dep.partition(".")[2] or None)

    def tainted(self) -> bool:
        """Whether any name holds something tainted."""
        return any(entry.why is not None for entry in self.entries.values())

    def _spend(self, steps: int) -> None:
        self.patience -= steps
        if self.patience < 0:
            raise TooMuch

    def _leads(self, dep: str, through_data: bool = True) -> Iterable[str]:
        """The deps of one dep."""
        name = plain(dep)
        entry = self.entries.get(name)
        deps: Iterable[str] = () if entry is None or (entry.kind == DATA and not through_data) else entry.deps
        return [*deps, DISPLAYED] if known.history(name) and name != DISPLAYED else deps

    def _own(self, dep: str) -> Optional[str]:
        if dep[0] == "!":
            return dep.lstrip("!")
        name = plain(dep)
        entry = self.entries.get(name)
        if entry is not None:
            if entry.why is not None:
                return entry.why
            if entry.module in known.GUARDED and entry.kind == MODULE and not dep.endswith((".=", "(")):
                attribute = dep[len(name) + 1 :]
                if not attribute:
                    return f"hands on the module `{entry.module}`"
                if known.guarded(entry.module, attribute) is not None:
                    return f"uses `{dep}`"
            return None
        if name == LIBRARIES or known.builtin(name) or known.history(name) or (dep.endswith("(") and name in known.FORMS):
            return None
        if self.star and name not in known.DOMINION and name not in known.FORMS:
            return None if known.forbidden(name) is None else "may have come with `import *`"
        return f"is `{name}`" if name in known.FORMS or name in known.DOMINION else "is not known here"

    def _add(self, name: str, why: Optional[str], deps: Iterable[str]) -> None:
        entry = self.entries[name]
        new = [dep for dep in deps if dep not in entry.deps]
        if not new and (why is None or entry.why is not None):
            entry = self._touch(name, entry)
            return
        self._save(name, entry)
        entry = self._touch(name, self.entries[name])
        entry.deps.update(new)
        if why is not None and entry.why is None:
            entry.why = why
            if name in self._clean:
                self._doubt()
        if new and name in self._clean and not self._clean.issuperset(new):
            self._doubt()
        if new and name in self._tame and not self._tame.issuperset(new):
            self._tame.clear()
        self.changes += 1

    def _touch(self, name: str, entry: Entry) -> Entry:
        if entry.serial != self.serial:
            self._save(name, entry)
            entry = self.entries[name]
            entry.serial = self.serial
        return entry

    def _doubt(self) -> None:
        """What was known to be harmless may be no longer."""
        self._clean.clear()
        self._tame.clear()

    def _save(self, name: str, entry: Optional[Entry]) -> None:
        """During a trial: remember ``entry`` and go on with a copy."""
        if self._before is not None and name not in self._before:
            self._before[name] = entry
            if entry is not None:
                self.entries[name] = entry.copy()


def plain(dep: str) -> str:
    """The name in a dep."""
    if dep[0] == "!":
        return dep
    return dep.partition(".")[0] if "." in dep else dep.rstrip("(")
