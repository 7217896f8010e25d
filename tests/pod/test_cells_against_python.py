"""The analysis against Python itself: random sessions are really run with a pretended GPU, and no cell that touches it may pass as CPU."""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import re
import sys
import types
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.pod.cells.session import Session

LIBRARY = "pretended"


class Touched:
    """How often the pretended GPU was touched."""

    count = 0


def _touching(result: object) -> object:
    def method(self: object, *args: object) -> object:
        Touched.count += 1
        return Tensor() if result is None else result

    return method


class Tensor:
    """Whatever is done with it touches the GPU: computing, showing, comparing, and letting go of it."""

    __add__ = __radd__ = __call__ = __getitem__ = __neg__ = _touching(None)
    __eq__ = __bool__ = __contains__ = _touching(True)
    __hash__ = __len__ = __index__ = _touching(1)
    __repr__ = __str__ = _touching("tensor")
    __del__ = _touching(0)

    def __getattr__(self, name: str) -> object:
        Touched.count += 1
        if name.startswith("__"):
            raise AttributeError(name)
        return Tensor()

    def __iter__(self) -> Iterator[object]:
        Touched.count += 1
        return iter([Tensor()])


def _library() -> types.ModuleType:
    module = types.ModuleType(LIBRARY)
    module.Tensor = Tensor  # type: ignore[attr-defined]
    module.fill = lambda box: box.append(Tensor())  # type: ignore[attr-defined]
    module.run = lambda function: function(Tensor())  # type: ignore[attr-defined]
    return module


# Templates: N a name, F a function or class, E an expression, S a statement.
EXPRESSIONS = """
N; N; N; 1; []; {}; 'x'; T.Tensor(); _; [E]; [E, E]; (E, E); {'k': E}; N[0]; N['k']; N.x; F(E); F(); N(E); N(); (lambda: E)
(lambda p: [p, E]); (E if E else N); (E or N); list(E); dict(k=E); iter(E); map(F, [E]); [i for i in E]; (i for i in [E] if N); f'{N}'
str(N); len(E); E + E; E == E; getattr(E, 'x', E); functools.partial(F, E); copy.copy(E); next(E, None); N.get('k'); (z := E)
sorted([1], key=F); T.run(F); float(E); E is None; not E; N.pop(); type(N); vars(N); N.get(E); N[0](E); N.x(E); zip(N, E)
collections.deque([E]); [N, N]; F(N, E); enumerate(E); N.copy(); {N: 1 for N in E}; [F(N) for i in list(E)[:2]]; (lambda N: E)(E)
max([E], key=F); isinstance(E, F); N.__class__; hasattr(N, 'x'); reversed([E]); N.setdefault('k', E); functools.reduce(F, [E, E], N)
list(map(F, list(N)[:2], [E])); F(*[E]); F(**{'p': E}); type('X', (C,), {'y': E}); [*N, E]; {**N}; N[:]; itertools.chain([E], N)
(lambda p=E: p); (lambda *p: N); collections.defaultdict(F, k=E); property(F); N.__add__([E]); [(w := E) for i in [1]]; N.__init__
F.__name__; callable(N); any([E]); {'k': F}; [F, G]; N[-1](); next(iter([E])); bool(N); operator.setitem(N, 0, E); operator.add(N, E)
"""
STATEMENTS = """
N = E; N = E; N = E; N = N; N = F; N, N = E, E; N, N = E; N = N = E; N.append(E); N.append(E); N.x = E; F.x = E; N['k'] = E; N[0] = E
N += [E]; del N; E; E; N.extend([E]); N.update(k=E); print(N); T.fill(N); F(E); F(N, E); setattr(N, 'x', E); list.append(N, E); assert E
def F(p=None, q=None): return E; def F(p=None, q=None): return [p, N]; def F(p=None, q=None): N.append(p)
def F(p=None, acc=[]):|acc.append(p)|return acc; def F(p=None):|global N|N = p; def F(p=None):|global N|N = E
def F(p=None):|def h(): return p or N|return h; def F(p=N, q=None): return p; def F(p=None, q=None):|p.append(q)
def F(p=None, q=None):|p.x = q; def F(p=None):|yield p|yield N; def F(p=None):|F.x = p
class F:|y = E|def __init__(self, p=None, q=None): self.x = p|def get(self, k=None): return N|def __call__(self, p=None): return self.x
class F:|all = []|def __init__(self, p=None): self.all.append(p)|def __len__(self): return len(N) + 1; class F(list):|x = N
class F:|def __init_subclass__(cls): N.append(cls)|def __init__(self, p=None): self.p = p|def __add__(self, o): return N
class F(F): x = E; @F|def g(p=None): return N; N = staticmethod(F); N = functools.lru_cache(F); N = classmethod(F); N = F(E).get
N = N.append; N(E); N[:] = [E]; N[0].append(E); N.x.append(E); N['k'].append(E); F(E).append(E); (N or N).append(E); N.insert(0, E)
list(N).sort(key=F); N.sort(key=F); N.__class__.y = E; type(N).x = E; vars(N)['x'] = E; F().x = E; N[0][0] = E; N.x.y = E
def F(*p):|return [N, p]; def F(p=None):|return p.get(N); class F:|def __del__(self): N
class F(C):|def get(self, k=None): return [N, super().get(k)]; def F(p=None):|p = p or N|p.append(E)|return p
@functools.wraps(F)|def G(p=None): return E; @staticmethod|def G(p=None): return E; def F(p=None):|with p: return N
def F(p=None):|for i in N:|return i; @functools.lru_cache|def F(p=None): return [p, N]
class F:|def __enter__(self): return N|def __exit__(self, *a): N.append(a); N = N[0] = E; N = [N for i in [E]]
class F:|@property|def x(self): return N; class F:|x = property(lambda self: E); def F(p=None):|class K:|y = N|return K; N, *N = E, E, E
raise E; for N in list(E)[:2]:|S|S; with contextlib.suppress(Exception):|S|S; try:|S|finally:|S; with F(E):|S; for _i in range(2):|S|S
for _i in range(2):|S; if E:|S|else:|S; try:|S|except Exception as N:|S; while N:|S|break; with F(E) as N:|S
"""


def _templates(text: str) -> list[str]:
    return [template.strip() for line in text.strip().splitlines() for template in line.split("; ")]


def _compound(template: str) -> str:
    """``a:|b|else:|c`` on lines of their own."""
    lines, indent = [], ""
    for part in template.split("|"):
        if part.startswith(("else:", "except", "finally")):
            indent = ""
        lines.append(indent + part)
        if part.endswith(":"):
            indent += "    "
    return "\n".join(lines)


_SIMPLE = [t for t in _templates(EXPRESSIONS) if not re.search("E", t)]
_RICH = _templates(EXPRESSIONS)
_LINES = [_compound(t) for t in _templates(STATEMENTS) if "S" not in t]
_BLOCKS = [_compound(t) for t in _templates(STATEMENTS) if "S" in t]


def _filled(draw: st.DrawFn, template: str, depth: int, nesting: int = 0) -> str:
    def hole(match: re.Match[str]) -> str:
        kind = match.group()
        if kind == "N":
            return draw(st.sampled_from("abcdef"))
        if kind == "F":
            return draw(st.sampled_from("FGC"))
        if kind == "E":
            return _filled(draw, draw(st.sampled_from(_RICH if depth else _SIMPLE)), depth - 1)
        return _statement(draw, nesting - 1).replace("\n", "\n    ")

    return re.sub(r"\b[NFES]\b(?!')", hole, template)


def _statement(draw: st.DrawFn, nesting: int) -> str:
    return _filled(draw, draw(st.sampled_from(_LINES + _BLOCKS if nesting > 0 else _LINES)), 2, nesting)


@st.composite
def sessions(draw: st.DrawFn) -> list[str]:
    return ["\n".join(_statement(draw, 2) for _ in range(draw(st.integers(1, 3)))) for _ in range(draw(st.integers(2, 8)))]


FIRST = """import collections, contextlib, copy, functools, itertools, operator
a, b, c, d, e, f = [], [1], {}, 1, [[]], {'k': []}
class C:
    def __init__(self, p=None): self.x = p
    def get(self, k=None): return self.x
def F(p=None, q=None): return p
def G(p=None, q=None): return [p, q]"""


class Kernel:
    """Runs cells as IPython does: one namespace, the last expression shown and kept."""

    def __init__(self) -> None:
        self.namespace: dict[str, object] = {"Out": {}, "_": ""}

    def run(self, cell: str) -> tuple[bool, bool]:
        """Whether the cell touched the GPU, and whether it ran to its end."""
        before = Touched.count
        whole = False
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
            body = ast.parse(cell).body
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), "cell", "exec"), self.namespace)
            if last is not None:
                shown = eval(compile(ast.Expression(last.value), "cell", "eval"), self.namespace)
                if shown is not None:
                    repr(shown)
                    out = self.namespace["Out"]
                    out[len(out)] = self.namespace["_"] = shown  # type: ignore[index,arg-type]
            whole = True
        return Touched.count > before, whole


@pytest.fixture(autouse=True)
def _pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, LIBRARY, _library())
    gc.disable()  # collecting cycles is the watchdog's business, not the analysis's
    yield
    gc.enable()


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))  # steady; raise to hunt
@given(sessions(), st.booleans())
@example(["a.append(T.Tensor())", "b = a", "b"], True)
@example(["a = [T.Tensor()]", "a = 1", "a"], True)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_no_cell_that_touches_the_gpu_passes_as_cpu(cells: list[str], told: bool) -> None:
    session, kernel = Session(), Kernel()
    history = []
    for cell in [FIRST, f"import {LIBRARY} as T", *cells]:
        verdict, ticket = session.classify(cell), session.ran(cell)
        history.append(cell)
        touched, whole = kernel.run(cell)
        assert verdict.needs_gpu or not touched, "\n---\n".join(history)
        if told and whole:
            session.succeeded(ticket)
