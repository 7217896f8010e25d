"""What expressions give, and what evaluating them may touch: everything but calls.

A lambda that is only made touches nothing; every other use of something tainted is an event.
"""

from __future__ import annotations

import ast
from typing import Callable

from . import known
from .effects import CLEAN, Effects, element, join, shared
from .names import ATOM, CODE, DATA, MODULE, OBJECT, Value
from .scope import Frame, bound_in


class Values(Effects):
    """Each method is given a node and returns its value; ``EXPRESSIONS`` says which method reads which."""

    EXPRESSIONS: dict[type, str] = {
        ast.Name: "name",
        ast.Constant: "constant",
        ast.JoinedStr: "text",
        ast.List: "container",
        ast.Set: "container",
        ast.Dict: "container",
        ast.BinOp: "operator",
        ast.UnaryOp: "unary",
        ast.Compare: "compare",
        ast.Subscript: "subscript",
        ast.Attribute: "attribute_value",
        ast.NamedExpr: "named",
        ast.ListComp: "comprehension",
        ast.SetComp: "comprehension",
        ast.DictComp: "comprehension",
        ast.GeneratorExp: "comprehension",
        ast.Lambda: "function",
        ast.Call: "call",
    }

    def value(self, node: ast.expr) -> Value:
        value = self.code(node)
        return self.handed_on(value) if isinstance(node, ast.Lambda) else value

    def code(self, node: ast.expr) -> Value:
        """As ``value``, but a lambda may be kept for later."""
        method = self.EXPRESSIONS.get(type(node), "parts")
        handler: Callable[[ast.expr], Value] = getattr(self, method)
        return handler(node)

    def parts(self, node: ast.AST) -> Value:
        return join([self.value(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)])

    def name(self, node: ast.Name) -> Value:
        return self.load(node.id)

    def constant(self, node: ast.Constant) -> Value:
        word = known.reflects(node.value) if isinstance(node.value, str) else None
        return CLEAN if word is None else self.tainted(f"reaches for `{word}`", dominion=True)

    def text(self, node: ast.JoinedStr) -> Value:
        return Value(ATOM, self.parts(node).why)

    def container(self, node: ast.expr) -> Value:
        whole = join([CLEAN, self.parts(node)])
        return Value(OBJECT, whole.why, whole.deps)

    def operator(self, node: ast.expr) -> Value:
        operands: list[Value] = []
        while isinstance(node, ast.BinOp):  # a long sum is a tree that leans to the left
            operands.append(self.value(node.right))
            node = node.left
        operands.append(self.value(node))
        if any(operand.kind == DATA for operand in operands):  # with a list literal, say, it makes an array again
            operands = [Value(DATA, o.why) if o.kind == OBJECT and not o.deps else o for o in operands]
        return _computed(join(operands))

    def unary(self, node: ast.UnaryOp) -> Value:
        operand = self.value(node.operand)
        return CLEAN if isinstance(node.op, ast.Not) else _computed(operand)

    def compare(self, node: ast.Compare) -> Value:
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)) and self._only_asked(node.comparators[0]):
            self.value(node.left)
            return CLEAN
        whole = self.parts(node)
        if all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
            return CLEAN
        return _computed(whole)

    def _only_asked(self, node: ast.expr) -> bool:
        """``globals()``, ``sys.modules`` and the like: harmless where they are only asked whether they have a name."""
        if isinstance(node, ast.Call):
            return _bare_call(node) in ("globals", "locals", "vars") and self.unbound(_bare_call(node))
        if isinstance(node, ast.Attribute) and node.attr == "modules" and isinstance(node.value, ast.Name):
            return self.load(node.value.id, "path").module == "sys"
        return False

    def subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Call) and _bare_call(node.value) == "globals" and self.unbound("globals"):
            key = node.slice
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(node.ctx, ast.Load):
                return self.load(key.value)
        base = self.value(node.value)
        whole = join([Value(ATOM, base.why, base.deps), self.value(node.slice)])
        return Value(OBJECT if base.kind == CODE else base.kind, whole.why, whole.deps, base.module)

    def attribute(self, node: ast.Attribute) -> tuple[Value, Value]:
        """``(the attribute, what it is of)``."""
        base = self.load(node.value.id, node.attr) if isinstance(node.value, ast.Name) else self.value(node.value)
        own = node.attr == "__dict__" and isinstance(node.value, ast.Name) and self.local(node.value.id) is not None
        bad = None if own else known.forbidden(node.attr, base.module)
        if bad is not None:
            value = self.tainted(f"reaches for `{node.attr}`", bad, came=base.why)
            return value._replace(deps=base.deps), base
        module = f"{base.module}.{node.attr}" if base.module is not None else None
        return Value(OBJECT if base.kind == CODE else base.kind, base.why, base.deps, module), base

    def attribute_value(self, node: ast.Attribute) -> Value:
        return self.attribute(node)[0]

    def named(self, node: ast.NamedExpr) -> Value:
        value = shared(self.value(node.value))
        self._blocks += 1  # what stands around it may be cut short
        self.store(node.target, value)
        self._blocks -= 1
        name = node.target.id
        named = self._read is None and value.kind >= DATA and self.local(name) is None
        return value._replace(deps=value.deps | {name}) if named else value

    def comprehension(self, node: ast.expr) -> Value:
        frame = Frame("comprehension")
        self._frames.append(frame)
        try:
            for clause in node.generators:  # type: ignore[attr-defined]
                items = element(self.value(clause.iter))
                frame.names.update(dict.fromkeys(bound_in([clause.target])[0], items))
                for condition in clause.ifs:
                    self.value(condition)
            results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]  # type: ignore[attr-defined]
            whole = join([CLEAN, *(self.value(part) for part in results)])
        finally:
            self._frames.pop()
        deps = whole.deps
        if isinstance(node, ast.GeneratorExp) and self._read is None:  # it goes on looking names up when it is asked for more
            used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - frame.names.keys()
            deps = deps | {name for name in used if self.local(name) is None}
        return Value(OBJECT, whole.why, deps)

    def kept(self, node: ast.expr) -> Value:
        """The value of an expression that is given a name."""
        value = self.code(node)
        return value if isinstance(node, ast.Lambda) else shared(value)

    def store(self, target: ast.expr, value: Value) -> None:
        """Assign ``value`` to a target."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, ast.Attribute):
            self.plant(self.attribute(target)[1], value, target)
        elif isinstance(target, ast.Subscript):
            base, key = self.value(target.value), self.value(target.slice)
            self.plant(base, join([CLEAN, value, key]), target)
        elif isinstance(target, ast.Starred):
            self.store(target.value, Value(OBJECT, value.why, value.deps))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.store(part, element(value))
            if value.kind == OBJECT:
                self.share([part.id for part in target.elts if isinstance(part, ast.Name)])
        else:
            self.event("uses syntax that is not known here")

    def share(self, names: list[str]) -> None:
        """Names bound at once may share what they hold."""
        if len(names) > 1 and not self._frames:
            self.link(names, frozenset(names))


def _computed(value: Value) -> Value:
    """The result of an operator: of numbers and arrays it is new."""
    return Value(value.kind, value.why) if value.kind in (ATOM, DATA) else value if value.kind != MODULE else Value(OBJECT, value.why)


def _bare_call(node: ast.Call) -> str:
    """``f`` of ``f()``."""
    return node.func.id if isinstance(node.func, ast.Name) and not node.args and not node.keywords else ""
