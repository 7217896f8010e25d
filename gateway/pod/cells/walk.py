"""Goes through a cell as Python would, and finds what could touch a GPU and what the cell may leave in each name.

What runs now is checked now; the body of a function is only read, for the names that it will look up when it runs. Nothing is run or
imported. It must never call a cell harmless because it doesn't understand it: unknown syntax counts as using a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Callable

from . import known
from .calls import Calls
from .effects import CLEAN, THING, element, join, shared
from .names import ATOM, CODE, DATA, DISPLAYED, MODULE, OBJECT, Value
from .scope import Frame, Function, annotation, annotations, bound_in, parameters, type_parameters

PASSES = 3  # through a loop, until nothing new is found


class Walker(Calls):
    """``statements`` goes through a cell; ``STATEMENTS`` says which method reads which kind."""

    STATEMENTS: dict[str, str] = {
        **dict.fromkeys(("Pass", "Break", "Continue", "Global", "Nonlocal"), "nothing"),
        **dict.fromkeys(("Return", "Raise", "Assert"), "parts"),
        **dict.fromkeys(("FunctionDef", "AsyncFunctionDef"), "define"),
        **dict.fromkeys(("For", "AsyncFor"), "loop_for"),
        **dict.fromkeys(("With", "AsyncWith"), "with_"),
        **dict.fromkeys(("Try", "TryStar"), "try_"),
        "Expr": "expression",
        "Assign": "assign",
        "AnnAssign": "annotated",
        "AugAssign": "augmented",
        "Delete": "delete",
        "ClassDef": "define_class",
        "If": "if_",
        "While": "loop_while",
        "Match": "match_",
        "Import": "import_",
        "ImportFrom": "import_from",
        "TypeAlias": "type_alias",
    }
    _looping = False

    def statements(self, nodes: Iterable[ast.stmt]) -> None:
        for node in nodes:
            method = self.STATEMENTS.get(type(node).__name__)
            if method is None:
                self.event("uses syntax that is not known here")
            else:
                getattr(self, method)(node)

    def block(self, nodes: Iterable[ast.stmt]) -> None:
        """Statements that may not run, or not once."""
        self._blocks += 1
        self.statements(nodes)
        self._blocks -= 1

    def nothing(self, node: ast.stmt) -> None:
        pass

    def expression(self, node: ast.Expr) -> None:
        value = self.value(node.value)
        if self._read is None and not self._frames and (value.why is not None or value.deps):
            self.names.bind(DISPLAYED, Value(OBJECT, value.why, value.deps))

    # assignments

    def assign(self, node: ast.Assign) -> None:
        if len(node.targets) == 1:
            self._pairwise(node.targets[0], node.value)
            return
        value = shared(self.code(node.value))
        for target in node.targets:
            self.store(target, value)
        if value.kind in (DATA, OBJECT):
            self.share([target.id for target in node.targets if isinstance(target, ast.Name)])

    def _pairwise(self, target: ast.expr, node: ast.expr) -> None:
        """``a, b = c, d`` is two assignments."""
        pair = isinstance(target, ast.Tuple) and isinstance(node, ast.Tuple) and len(target.elts) == len(node.elts)
        if not pair or any(isinstance(part, ast.Starred) for part in [*target.elts, *node.elts]):  # type: ignore[attr-defined]
            self.store(target, self.kept(node))
            return
        for one, other in zip(target.elts, node.elts):  # type: ignore[attr-defined]
            self._pairwise(one, other)

    def annotated(self, node: ast.AnnAssign) -> None:
        self.value(annotation(node.annotation))
        if node.value is not None:
            self.store(node.target, self.kept(node.value))

    def augmented(self, node: ast.AugAssign) -> None:
        value = self.value(node.value)
        if not isinstance(node.target, ast.Name):
            self.store(node.target, value)
            return
        old = self.load(node.target.id)
        if old.kind in (DATA, OBJECT):
            self.plant(old, value, node.target)
        self.bind(node.target.id, join([old, value]))

    def delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                self.value(target)
            elif self._read is None and self.local(target.id) is None:
                why = self.names.taint(target.id)
                if why is not None:
                    self.event(f"deletes `{target.id}`, which {why}: that may free GPU memory")

    def type_alias(self, node: ast.AST) -> None:
        self._frames.append(Frame("comprehension", dict.fromkeys(type_parameters(node), THING)))
        self.value(node.value)  # type: ignore[attr-defined]
        self._frames.pop()
        self.bind(node.name.id, THING)  # type: ignore[attr-defined]

    # blocks

    def if_(self, node: ast.If) -> None:
        while True:
            self.value(node.test)
            self.block(node.body)
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                break
            node = node.orelse[0]  # a long row of elif is a deep tree
        self.block(node.orelse)

    def loop_for(self, node: ast.For | ast.AsyncFor) -> None:
        def once() -> None:
            self.store(node.target, element(self.value(node.iter)))
            self.statements(node.body)

        self._loop(once)
        self.block(node.orelse)

    def loop_while(self, node: ast.While) -> None:
        def once() -> None:
            self.value(node.test)
            self.statements(node.body)

        self._loop(once)
        self.block(node.orelse)

    def _loop(self, once: Callable[[], None]) -> None:
        """What is tainted late in a loop is tainted early in its next round: go round until nothing is new."""
        self._blocks += 1
        if self._looping or self._read is not None:
            once()
            self._blocks -= 1
            return
        self._looping = True
        for _ in range(PASSES):
            before, self._changed = self.names.changes, set()
            once()
            if self.names.changes == before:
                break
        else:
            for name in self._changed if self._events else ():
                self.names.spoil(name, "was changed in a loop that uses a GPU")
        self._looping = False
        self._blocks -= 1

    def with_(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = shared(self.value(item.context_expr))
            if item.optional_vars is not None:
                self.store(item.optional_vars, value)
        self.block(node.body)

    def try_(self, node: ast.Try) -> None:
        before = self._events
        self.block(node.body)
        for handler in node.handlers:
            if handler.type is not None:
                self.value(handler.type)
            self._blocks += 1
            if handler.name:
                self.bind(handler.name, Value(OBJECT, "came from code that uses a GPU" if self._events > before else None))
            self.statements(handler.body)
            self._blocks -= 1
        self.block(node.orelse)
        self.block(node.finalbody)

    def match_(self, node: ast.AST) -> None:
        subject = self.value(node.subject)  # type: ignore[attr-defined]
        for case in node.cases:  # type: ignore[attr-defined]
            for part in ast.walk(case.pattern):
                if not isinstance(part, ast.expr):
                    self.parts(part)
            self._blocks += 1
            for name in bound_in([case.pattern])[0]:
                self.bind(name, element(subject))
            if case.guard is not None:
                self.value(case.guard)
            self.statements(case.body)
            self._blocks -= 1

    # functions and classes

    def function(self, node: Function) -> Value:
        """A function: what its defaults hold, and the names that its body leads to."""
        defaults = [self.value(default) for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None]
        body = [ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body
        bound, declared = bound_in(body)
        outermost = self._read is None
        if self._read is None:
            self._read, self._writes, self._outside = set(), set(), len(self._frames)
        read = self._read
        self._frames.append(Frame("function", dict.fromkeys(bound | parameters(node), THING), declared))
        self.statements(body)
        self._frames.pop()
        if not outermost:
            return join([Value(CODE), *defaults])
        self._read = None
        deps = frozenset(read).union(*(default.deps for default in defaults))
        for name in self._writes:
            self.names.bind(name, Value(OBJECT, None, deps))
            self._forget(name)
        keeps = any(default.kind != ATOM for default in defaults) or getattr(node, "name", "") in map(_head, read)
        return Value(OBJECT if keeps else CODE, join([CLEAN, *defaults]).why, deps)

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        decorators = [(self.value(decorator), decorator) for decorator in node.decorator_list]
        self._frames.append(Frame("comprehension", dict.fromkeys(type_parameters(node), THING)))
        for note in annotations(node):
            self.value(note)
        self._frames.pop()
        value = self.function(node)
        for decorator, source in reversed(decorators):
            value = self._decorated(value, decorator, source)
        self.bind(node.name, value)

    def define_class(self, node: ast.ClassDef) -> None:
        decorators = [(self.value(decorator), decorator) for decorator in node.decorator_list]
        frame = Frame("class", {"__qualname__": CLEAN, "__module__": CLEAN})
        self._frames.append(Frame("comprehension", dict.fromkeys(type_parameters(node), THING)))
        above = [self.value(base) for base in node.bases] + [self.value(keyword.value) for keyword in node.keywords]
        self._frames.append(frame)
        self.block(node.body)
        del self._frames[-2:]
        held = list(frame.names.values())
        whole = join([CLEAN, *held, *above])
        plain = not above and not decorators and all(value.kind in (ATOM, CODE) for value in held)
        plain = plain and node.name not in map(_head, whole.deps)  # or it could keep what its instances get
        value = Value(CODE if plain else OBJECT, whole.why, whole.deps)
        if node.keywords or not all(self._inert_base(base) for base in node.bases):
            value = self.handed_on(value)  # a base or a metaclass may run its methods
            self.called(join([CLEAN, *above]), [value])
        for decorator, source in reversed(decorators):
            value = self._decorated(value, decorator, source)
        self.bind(node.name, value)

    def _inert_base(self, base: ast.expr) -> bool:
        if isinstance(base, ast.Name) and base.id in known.INERT_BASES and self.unbound(base.id):
            return True
        return _last_name(base) in known.INERT_LIBRARY_BASES and self.module_root(base)

    def _decorated(self, value: Value, decorator: Value, source: ast.expr) -> Value:
        name = _last_name(source)
        builtin = isinstance(source, ast.Name) and self.unbound(name) and known.builtin(name)
        if name in known.INERT_DECORATORS and (builtin or name in ("setter", "getter", "deleter") or self.module_root(source)):
            holds = name == "wraps" or "cache" in name
            return Value(OBJECT if holds else value.kind, value.why or decorator.why, value.deps | decorator.deps)
        value = self.handed_on(value)
        result = self.called(decorator, [value], name, builtin=builtin, keeps=self._keeps(source))
        return Value(OBJECT, result.why or value.why, result.deps | value.deps)

    # imports

    def imported(self, module: str) -> Value:
        """The value of a module, by its whole name."""
        top = known.root(module)
        if known.vetted(module):
            return Value(MODULE, None, frozenset(), module)
        if top not in known.FRAMEWORKS:
            self.strangers.add(top)
        accelerator = any(module == name or module.startswith(f"{name}.") for name in known.ACCELERATORS)
        return self.tainted(f"imports `{module}`", accelerator or top in known.OMNIPOTENT, came=f"came from `{top}`")

    def import_(self, node: ast.Import) -> None:
        for alias in node.names:
            value, top = self.imported(alias.name), known.root(alias.name)
            if alias.asname is None and value.kind == MODULE:
                value = Value(MODULE, None, frozenset(), top)
            self.bind(alias.asname or top, value)

    def import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            whole = self.tainted("imports from a package of its own", came="came from an own package")
        elif module == "IPython" and all(alias.name == "get_ipython" and not alias.asname for alias in node.names):
            return  # every cell has it anyway
        else:
            whole = self.imported(module)
        for alias in node.names:
            if alias.name == "*":
                self._import_all(module, whole)
            else:
                self.bind(alias.asname or alias.name, self._member(module, alias.name) if whole.kind == MODULE else whole)

    def _member(self, module: str, name: str) -> Value:
        bad = known.guarded(module, name)
        bad = known.forbidden(name, module) if bad is None else bad
        if bad is not None:
            return self.tainted(f"imports `{name}` from `{module}`", bad, came=f"came from `{module}`")
        return self.imported(f"{module}.{name}")

    def _import_all(self, module: str, whole: Value) -> None:
        if whole.kind != MODULE or module in known.GUARDED:
            self.event(f"imports everything from `{module}`, which may replace any name", dominion=True)
            return
        if self.names.tainted():
            self.event(f"imports everything from `{module}`, which may replace names that hold GPU memory")
        self.names.star = True


def _last_name(node: ast.expr) -> str:
    """``c`` of ``a.b.c(...)``."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _head(dep: str) -> str:
    return dep.partition(".")[0]
