"""What calls give, and what they may do to what they are given. The builtins that reach beyond are safe only in the forms read here.

It must never assume that a function leaves its arguments alone, unless it belongs to a library known for that.
"""

from __future__ import annotations

import ast
from typing import Optional

from . import known
from .effects import CLEAN, THING, join
from .names import ATOM, CODE, DATA, LIBRARIES, MODULE, OBJECT, Value, plain
from .source import Special, shell_method
from .values import Values


class Calls(Values):
    def call(self, node: ast.Call) -> Value:
        special = self._form(node)
        if special is not None:
            return special
        func, receiver, builtin, name = node.func, None, False, ""
        if isinstance(func, ast.Attribute):
            name = func.attr
            callee, receiver = self.attribute(func)
            if isinstance(func.value, ast.Name) and known.builtin(func.value.id) and self.unbound(func.value.id):
                receiver = None  # list.append(a, b) is a function of both
        elif isinstance(func, ast.Name):
            name = func.id
            builtin = self.unbound(name) and known.builtin(name)
            callee = self.load(name)
        else:
            callee = self.value(func)
        args = [self.value(arg) for arg in node.args] + [self.value(keyword.value) for keyword in node.keywords]
        if node.keywords:
            self._keywords(node, name)
        if receiver is not None and receiver.kind != ATOM and name in ("eval", "query"):
            self._expression_text(node)
        return self.called(callee, args, name, receiver, builtin, self._keeps(func))

    def called(
        self, callee: Value, args: list[Value], name: str = "", receiver: Optional[Value] = None, builtin: bool = False, keeps: bool = False
    ) -> Value:
        """The result of a call. ``receiver``: what ``name`` is a method of; ``keeps``: a library keeps the arguments for later."""
        module = callee.module if callee.kind == MODULE else None
        whole, given = join([CLEAN, callee, *args]), join([CLEAN, *args])
        calls_back = any(arg.kind == CODE for arg in args)
        # 1. whether it leaves its arguments alone
        if builtin:
            quiet = name not in known.CALLING
        elif module is not None:
            quiet = not known.mixes(known.root(module), name) and not calls_back
        else:
            quiet = receiver is not None and receiver.kind in (ATOM, DATA) and not calls_back
        # 2. what ends up where
        if whole.why is not None:
            if not quiet:
                changes = module is not None and name in known.CHANGES
                for arg in args:
                    if changes or arg.kind in (OBJECT, CODE):
                        self.spoil(arg.deps, whole.why, planted=changes)
            planted = given.why is not None and receiver is not None and (receiver.kind == DATA or name in known.PLANTS)
            self.spoil(callee.deps, whole.why, planted)
        elif not quiet:
            self._mixed(callee, args, given, whole, name, receiver)
        elif receiver is not None and receiver.kind == DATA and given.kind == OBJECT:
            self.link(receiver.deps, given.deps)
        if keeps or (receiver is not None and name in ("addHandler", "addFilter")):
            self.keep(given)
        # 3. what comes back
        if builtin:
            return CLEAN if name in known.EXACT else Value(ATOM, whole.why) if name in known.ATOMS else Value(OBJECT, whole.why, given.deps)
        if module is not None:
            return self._from_library(module, name, whole, given, keeps)
        if receiver is not None and receiver.kind == ATOM:
            return Value(ATOM if name in known.ATOM_METHODS else OBJECT, whole.why, given.deps)
        if receiver is not None and receiver.kind == DATA:
            return Value(OBJECT if name in known.LIST_METHODS else DATA, whole.why, whole.deps)
        return Value(OBJECT, whole.why, whole.deps)

    def _mixed(self, callee: Value, args: list[Value], given: Value, whole: Value, name: str, receiver: Optional[Value]) -> None:
        """Untainted as of now: what it was given may have been put into anything that it leads to."""
        if receiver is not None and name in known.PLANTS:
            holders = set(receiver.deps)
        else:
            holders = {dep for arg in args if arg.kind == OBJECT for dep in arg.deps}
            holders |= set(receiver.deps) if receiver is not None else set()
            for dep in self.names.reach(callee.deps):
                entry = self.names.entries.get(plain(dep))
                if dep.endswith(".=") and (plain(dep) == LIBRARIES or (entry is not None and entry.kind == MODULE)):
                    self.keep(whole)
                if entry is not None and (dep.endswith(".=") or entry.kind == OBJECT):
                    holders.add(dep)
        if given.deps:
            self.link(holders, given.deps)

    def _from_library(self, module: str, name: str, whole: Value, given: Value, keeps: bool) -> Value:
        if keeps:
            return Value(MODULE, whole.why, given.deps, f"{module}()")  # perhaps a decorator that keeps what it gets
        if not known.makes_values(known.root(module)):
            return Value(OBJECT, whole.why, given.deps)
        fresh = name in known.FRESH and given.kind != OBJECT
        return Value(DATA, whole.why, frozenset() if fresh else given.deps)

    def _keeps(self, func: ast.expr) -> bool:
        """A function of a library that keeps what it is given, as its name tells: ``pd.api.register_...``, ``np.set_...``."""
        node = func
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute) and known.keeps(node.attr):
                break
            if not isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
                return False
            node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Name) and not known.keeps(node.id):
            return False
        if self._read is not None:
            self._mark_store(func)
            return False
        return self.module_root(func)

    def _keywords(self, node: ast.Call, name: str) -> None:
        for keyword in node.keywords:
            constant = keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
            if keyword.arg == "allow_pickle" and constant is not False:
                self.event("loads pickled objects")
            elif keyword.arg == "backend" and constant is not None and constant not in known.SAFE_BACKENDS:
                self.event("chooses a back end that is not known")
            elif keyword.arg in ("eval_str", "preexec_fn"):
                self.event(f"uses `{keyword.arg}`")
            elif keyword.arg is None and name == "load":
                self.event("loads with options that are not known")

    def _expression_text(self, node: ast.Call) -> None:
        """``df.query("a > @limit")``: an expression in a string, which may use names of the session."""
        text = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "expr"), None)
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            for name in known.identifiers(text.value):
                if not self.unbound(name):
                    self.load(name)
        elif text is not None:
            self.event("evaluates a computed expression")

    # builtins that reach beyond what they are given

    def _form(self, node: ast.Call) -> Optional[Value]:
        """The value of a call that needs a closer look; None for any other."""
        func, args = node.func, node.args
        if isinstance(func, ast.Attribute):
            return self._shell_method(func, node) if self._is_shell(func.value) else None
        if not isinstance(func, ast.Name) or not self.unbound(func.id):
            return None
        name = func.id
        if name in ("str", "repr", "type") and len(args) == 1 and self._is_shell(args[0]):
            return CLEAN
        if name not in known.FORMS:
            return None
        if self._read is not None:
            self._read.add(f"{name}(")
        text = args[0].value if args and isinstance(args[0], ast.Constant) and isinstance(args[0].value, str) else None
        if name in ("getattr", "hasattr", "setattr", "delattr"):
            return self._getattr(name, node)
        if name in ("eval", "exec") and text is not None and len(args) == 1 and not node.keywords and self._read is None:
            return self._evaluated(name, text)
        if name in ("locals", "vars") and not args and self._read is not None:
            return THING
        if name == "__import__" and text is not None:
            return self.imported(text)
        whole = join([CLEAN, *(self.value(arg) for arg in args), *(self.value(keyword.value) for keyword in node.keywords)])
        if name == "help":
            shown = all(isinstance(arg, (ast.Name, ast.Attribute)) for arg in args) and all(self._documented(arg) for arg in args)
            return CLEAN if shown else self.tainted("looks something up by `help`", came=whole.why)
        return self.tainted(f"uses `{name}`", name in known.DOMINION and not (name == "vars" and args))._replace(deps=whole.deps)

    def _documented(self, node: ast.expr) -> bool:
        return self.module_root(node) or (isinstance(node, ast.Name) and self.unbound(node.id) and known.builtin(node.id))

    def _getattr(self, name: str, node: ast.Call) -> Value:
        args = node.args
        if len(args) < 2 or node.keywords or not (isinstance(args[1], ast.Constant) and isinstance(args[1].value, str)):
            whole = join([CLEAN, *(self.value(arg) for arg in args)])
            return self.tainted(f"uses `{name}` with a computed name")._replace(deps=whole.deps)
        attribute = ast.Attribute(args[0], args[1].value, ast.Load())
        rest = [self.code(arg) if name == "setattr" else self.value(arg) for arg in args[2:]]
        value, base = self.attribute(attribute)
        if name == "setattr":
            self.plant(base, join([CLEAN, *rest]), attribute)
        return CLEAN if name == "hasattr" else join([value, *rest])

    def _evaluated(self, name: str, text: str) -> Value:
        """``eval`` or ``exec`` of a constant is code like any other."""
        try:
            tree = ast.parse(text.strip(), mode=name)
        except (SyntaxError, ValueError):
            return CLEAN
        if isinstance(tree, ast.Expression):
            return self.value(tree.body)
        self.block(tree.body)
        return CLEAN

    def _is_shell(self, node: ast.expr) -> bool:
        func = node.func if isinstance(node, ast.Call) else None
        return isinstance(func, ast.Name) and func.id == "get_ipython" and self.unbound("get_ipython")

    def _shell_method(self, func: ast.Attribute, node: ast.Call) -> Optional[Value]:
        """``get_ipython().run_line_magic("matplotlib", "inline")``, as exported notebooks have it."""
        words = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        special = shell_method(func.attr, words) if len(words) == len(node.args) and not node.keywords else None
        if special is None:
            special = Special("uses `get_ipython()`", dominion=True)
        return CLEAN if special.why is None else self.tainted(special.why, special.dominion)
