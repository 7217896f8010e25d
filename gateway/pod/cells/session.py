"""Whether a notebook cell can touch a GPU, by conservative analysis of all that the session has run. What provably can't never waits.

The argument. A cell that uses only names whose values are *clean* can reach only what those lead to; if it also stays away from the
few ways out (foreign programs, imports, reflection, strings that run), nothing it does can be a GPU call. So each cell is walked through
(``walk``) over a symbol table (``names``) of what each name may hold: a value is tainted by an unvetted module, by what can't
be followed, by whatever is tainted already, and it taints what it is put into. Functions are read for the names they will look up, and
judged anew at each use. Unknown names, modules, magics and syntax count as using a GPU. ``%%gpu``, ``%%cpu`` and the tags come first.

What it relies on:

1. Packages of the vetted names are the well-known ones (``known``), not a file of that name in the notebook's folder.
2. Other packages taint what comes from them and the lists, dicts and objects they are given (not the arrays and frames, which they
   read). They don't rebind the user's names or patch vetted packages behind everybody's back, apart from the accelerators and IPython
   extensions known for it: after those, and after code that could do anything (``exec`` of a computed text), every cell counts.
3. A statement may not have run: a cell can fail, be interrupted or aborted. So taint is only ever added. It is taken away from a name
   that an unconditional top-level statement gave a clean value, and only by ``succeeded``, once the kernel has answered *ok*, if no
   later cell has touched the name.
4. What isn't a cell's own doing isn't seen: threads, tasks and signals that an earlier cell left behind, the garbage collector that
   frees GPU memory in the middle of a CPU cell, a traceback with tensors in it that a new error displaces. The stall watchdog
   (``stall``) and the driver's word on device use are there for those.

It must never run, import or evaluate anything, keep the text of cells, or raise.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional

from . import source as cells_source
from .known import builtin
from .names import LIBRARIES, PATIENCE, Names, TooMuch, Value
from .walk import Walker

TOO_DEEP = "is too deep or too tangled to be analysed"
_BEYOND = (RecursionError, MemoryError, TooMuch)


class Verdict(NamedTuple):
    """``why``: a phrase that completes "this cell ..."."""

    needs_gpu: bool
    why: str


class Ticket(NamedTuple):
    """What a cell has done, if every statement of it has run: for ``Session.succeeded``."""

    serial: int
    final: dict[str, Value]


class Session:
    """One kernel process's cells. ``python`` is the kernel's version; None: as this process's."""

    def __init__(self, python: Optional[tuple[int, int]] = None) -> None:
        self._newer = python is not None and python > sys.version_info[:2]
        self._names = Names()
        self.reset()

    def reset(self) -> None:
        """The kernel process is a new one."""
        self._names = Names(self._names.serial + 1)
        self._dominion: Optional[str] = None  # why no name can be trusted any more
        self._reloads = False  # %autoreload is on
        self._strangers: set[str] = set()  # imported modules that may be edited meanwhile

    def classify(self, code: str, metadata: Optional[dict[str, Any]] = None) -> Verdict:
        """What is known before it runs; changes nothing. ``metadata`` is the execute_request's, with the cell's tags if it has any."""
        try:
            source = cells_source.read(code, self._bound)
            return self._asked(source, metadata) or self._judged(source)
        except _BEYOND:
            return Verdict(True, TOO_DEEP)

    def ran(self, code: str) -> Ticket:
        """The cell was sent to the kernel: learn what it may do."""
        self._names.serial += 1
        self._names.patience = PATIENCE
        try:
            source = cells_source.read(code, self._bound)
            self._reloads = self._reloads or source.reloads
            if source.problem is not None and not source.typo:
                self._dominion = self._dominion or source.problem
            walker = Walker(self._names, source.specials)
            walker.statements(source.tree.body if source.tree is not None else [])
        except _BEYOND:
            self._dominion = self._dominion or TOO_DEEP
            return Ticket(self._names.serial, {})
        self._dominion = self._dominion or walker.dominion
        self._strangers |= walker.strangers
        return Ticket(self._names.serial, walker.final if source.exact and walker.dominion is None else {})

    def succeeded(self, ticket: Ticket) -> None:
        """The kernel has answered *ok* to the cell of this ticket: every top-level statement of it has run."""
        for name, value in ticket.final.items():
            entry = self._names.entries.get(name)
            if entry is not None and entry.serial == ticket.serial:
                self._names.replace(name, value)

    def _bound(self, name: str) -> bool:
        return name in self._names.entries or builtin(name)

    @staticmethod
    def _asked(source: cells_source.Source, metadata: Optional[dict[str, Any]]) -> Optional[Verdict]:
        if source.demand is not None:
            return Verdict(source.demand, "says %%gpu" if source.demand else "says %%cpu")
        tags = metadata.get("tags") if isinstance(metadata, dict) else None
        tags = tags if isinstance(tags, (list, tuple)) else ()
        for tag, needs in (("gpu", True), ("cpu", False)):
            if tag in tags:
                return Verdict(needs, f"has the tag {tag}")
        return Verdict(False, "runs on workers of its own") if source.elsewhere else None

    def _judged(self, source: cells_source.Source) -> Verdict:
        if source.problem is not None:
            return Verdict(True, source.problem)
        if source.tree is None:
            return Verdict(self._newer, "may be written for a newer Python" if self._newer else "can't run: it is no Python")
        if source.idle:
            return Verdict(False, "runs nothing that could use a GPU")
        if self._dominion is not None:
            return Verdict(True, f"comes after one that {self._dominion}")
        libraries = self._names.taint(LIBRARIES)
        if libraries is not None:
            return Verdict(True, f"comes after one that gave a library something that {libraries}")
        walker = Walker(self._names, source.specials)
        with self._names.trial():
            walker.statements(source.tree.body)
        if walker.why is None and self._reloads and self._strangers:
            return Verdict(True, f"may make %autoreload run `{min(self._strangers)}` again")
        return Verdict(walker.why is not None, walker.why or "uses nothing that could use a GPU")


class Unknown(Session):
    """Cells of another language: each may use a GPU."""

    def classify(self, code: str, metadata: Optional[dict[str, Any]] = None) -> Verdict:
        first = code.lstrip().partition("\n")[0].strip()
        source = cells_source.Source(demand={"%%gpu": True, "%%cpu": False}.get(first))
        return self._asked(source, metadata) or Verdict(True, "is in a language that is not analysed")

    def ran(self, code: str) -> Ticket:
        return Ticket(0, {})
