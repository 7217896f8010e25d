"""From a notebook cell to Python: IPython's own syntax is judged or unwrapped line by line, the rest is parsed.

Python that parses as it stands is left alone by IPython, so only cells that don't are looked at more closely. What can't be read with
certainty is a ``problem``. It must never run or import anything, and needs no IPython.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field
from keyword import iskeyword
from textwrap import dedent
from typing import Callable, Optional

from . import known

PLACEHOLDER = "__cell_%d__"


@dataclass
class Special:
    """A line that isn't Python: ``why`` it may use a GPU (None: it can't), and whether it may rebind any name."""

    why: Optional[str] = None
    dominion: bool = False
    asks: bool = False  # ``%gpu``, ``%burst attach``: it asks the gateway and touches nothing of the notebook's


@dataclass
class Source:
    """A cell, read. ``tree`` is None where it is no Python at all: then it can't run, unless there is a ``problem`` in saying so."""

    tree: Optional[ast.Module] = None
    specials: dict[str, Special] = field(default_factory=dict)  # by the name that stands for each in the tree
    demand: Optional[bool] = None  # what %%gpu or %%cpu say
    elsewhere: bool = False  # %%distributed: it runs in other processes, and what comes back is as if it had run here
    problem: Optional[str] = None
    typo: bool = False  # the problem is most likely that it is no code at all
    reloads: bool = False  # it switches on %autoreload
    exact: bool = True  # its statements run in the user's namespace, once

    @property
    def idle(self) -> bool:
        """Nothing in it, or only ``%gpu`` and ``%burst``."""
        lines = [line.value if isinstance(line, ast.Expr) else line for line in self.tree.body] if self.tree is not None else [None]
        return all(isinstance(line, ast.Name) and line.id in self.specials and self.specials[line.id].asks for line in lines)

    def stand_in(self, special: Special) -> str:
        name = PLACEHOLDER % len(self.specials)
        self.specials[name] = special
        return name


_CELL_MAGIC = re.compile(r"%%(\S+?)(\?{1,2})?(?:[ \t]+(.*?))?\s*$")
_ASSIGNED = re.compile(r"(\s*[A-Za-z_][\w.,\s\[\]'\"]*=)(?!=)\s*([%!])(.*)$", re.S)
_OPTIONS = {
    "time": re.compile(r"\s*(--no-raise-error\s+)?"),
    "timeit": re.compile(r"\s*((-[nrp]\s*\d+|-[tcqov]+)\s+)*"),
    "prun": re.compile(r"\s*((-[lsTD]\s*\S+|-[rq])\s+)*"),
    "memit": re.compile(r"\s*((-[rtn]\s*\d+|-[coi])\s+)*"),
}
_OPTIONS["mprun"] = _OPTIONS["lprun"] = re.compile(r"\s*((-[fT]\s*[\w.]+|-[rc])\s+)*")
_PROMPT = re.compile(r"\s*(>>>|In \[\d+\]: |\.{3,}:)")
_STRANGE = re.compile(r"[\x00\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_LITERAL_SETTING = re.compile(r"\w+\.\w+\s*=\s*(.+)$")
_DOTTED = re.compile(r"[A-Za-z_][\w.]*$")


def read(code: str, bound: Callable[[str], bool] = lambda name: False) -> Source:
    """``bound(name)``: the session has such a name, so that a cell of one line that begins with it is no magic.

    Raises RecursionError or MemoryError for code that is nested too deep.
    """
    source = Source()
    text = _cell_magics(dedent(code), source)
    if source.problem is not None or text is None:
        return source
    source.tree = _parse(text)
    if _one_line(text) and _automagic(text.strip(), source, bound):
        return source
    if source.tree is not None:
        return source
    if _STRANGE.search(text):
        source.problem = "has characters that make it hard to read"
        return source
    python = _lines(text, source)
    if source.problem is None and python != text:
        source.tree = _parse(python)
        if source.tree is None:
            source.problem = "can't be read as Python with magics"
    elif any(_PROMPT.match(line) for line in text.splitlines()):
        source.problem = "has prompts in it"
    elif any(line.rstrip().endswith("?") for line in text.splitlines()):
        source.problem, source.typo = "may ask for help on something", True
    return source


def line_magic(name: str, rest: str, source: Source) -> str:
    """The Python line that stands for ``%name rest``: its own code if it wraps some, else a placeholder."""
    rest = rest.strip()
    if name in known.TIMING:
        source.exact = False
        statement = rest[_OPTIONS[name].match(rest + " ").end() :].strip() if rest else ""  # type: ignore[union-attr]
        return statement or source.stand_in(Special())
    if name in known.HELP:
        return _help(rest, source)
    return source.stand_in(_judge(name, rest, source))


def _judge(name: str, rest: str, source: Source) -> Special:
    expands = "{" in rest or "$" in rest  # IPython puts values in there
    if name in known.ALIASES:
        return _shell(f"{known.ALIASES[name]} {rest}")
    if name in known.SHELLS:
        return _shell(rest)
    if name == "autoreload":
        source.reloads = rest not in ("0", "off")
        return Special()
    if name in ("load_ext", "reload_ext", "unload_ext"):
        known_extension = rest in known.EXTENSIONS
        return Special() if known_extension else Special(f"loads the extension `{rest}`, which is not known", dominion=True)
    if name == "matplotlib" and known.BACKENDS.match(rest):
        return Special()
    if name == "config" and _literal(rest):
        return Special()
    if name == "pdb" and rest in ("off", "0"):
        return Special()
    if name == "burst" and rest.split()[:1] == ["result"]:
        return Special("brings home what workers have made", dominion=True)
    if name in known.LINE_MAGICS and not expands:
        return Special(asks=name in ("gpu", "burst"))
    if name.startswith("%"):
        return Special()  # a cell magic that isn't on the first line: an error
    if name in known.OPAQUE or name in known.LINE_MAGICS:
        return Special(f"uses `%{name}`")
    if name in known.RUNNING:
        return Special(f"runs other code (`%{name}`)", dominion=True)
    return Special(f"uses the magic `%{name}`, which is not known", dominion=True)


def _shell(command: str) -> Special:
    if known.shell(command):
        return Special()
    shown = command.strip()
    return Special(f"runs the shell command `{shown if len(shown) <= 40 else shown[:39] + '…'}`")


def _cell_magics(text: str, source: Source) -> Optional[str]:
    """Take off the cell magics that wrap Python; None where what is left is none."""
    head: list[str] = []
    while True:
        lines = text.lstrip("\n\r\t ").splitlines(keepends=True)
        if not lines or not lines[0].startswith("%%"):
            return "".join(head) + text
        match = _CELL_MAGIC.match(lines[0])
        name, asked, rest = match.groups() if match else ("", None, None)
        rest = rest or ""
        text = "".join(lines[1:])
        if asked:
            source.tree = ast.Module([], [])
            return None
        if name in ("gpu", "cpu"):
            source.demand = source.demand if source.demand is not None else name == "gpu"
            continue
        if name in known.TIMING:
            source.exact = False
            setup = rest[_OPTIONS[name].match(rest + " ").end() :].strip() if rest else ""  # type: ignore[union-attr]
            head.append(f"{setup}\n" if setup else "")
            text = dedent(text)
            continue
        if name == "distributed":
            source.elsewhere, source.exact = True, False
            text = dedent(text)
            continue
        if name == "capture":
            words = [word for word in rest.split() if not word.startswith("--")]
            if all(word.isidentifier() for word in words):
                head += [f"{word} = {source.stand_in(Special())}\n" for word in words]
                text = dedent(text)
                continue
        if name in known.RENDERED and "{" not in rest and "$" not in rest:
            special = Special()
        elif name in known.SHELLS and not rest:
            unsafe = [line for line in text.splitlines() if not known.shell(line)]
            special = _shell(unsafe[0]) if unsafe else Special()
        elif name in known.SHELLS or name in known.PROGRAMS:
            special = Special(f"runs a program (`%%{name}`)")
        else:
            special = Special(f"uses the magic `%%{name}`, which is not known", dominion=True)
        source.exact = False
        source.tree = _parse("".join(head) + source.stand_in(special))
        if source.tree is None:
            source.problem = "can't be read as Python with magics"
        return None


def _automagic(line: str, source: Source, bound: Callable[[str], bool]) -> bool:
    """A cell of one line may be a magic without its %. True where that settles the cell."""
    word = re.match(r"[A-Za-z_]\w*", line)
    if not word or bound(word.group()):
        return False
    name, rest = word.group(), line[word.end() :]
    magic = name in known.LINE_MAGICS or name in known.ALIASES or name in known.TIMING or name in known.OPAQUE
    if source.tree is not None:
        if not magic or (rest and not rest.startswith((" ", "\t"))) or rest.lstrip().startswith(("=", ".", ",", ":")):
            return False
        source.tree = _parse(line_magic(name, rest, source))
        return source.tree is not None
    if iskeyword(name) or known.builtin(name) or not (rest == "" or rest.startswith((" ", "\t"))) or line.endswith("?"):
        return False
    if "=" in rest.split(None, 1)[:1]:
        return False  # an assignment, perhaps of a magic
    if not magic and name not in known.RUNNING:
        source.problem, source.typo = "may be a magic that is not known", True
        return True
    source.tree = _parse(line_magic(name, rest, source))
    if source.tree is None:
        source.problem = "can't be read as Python with magics"
    return True


def _lines(text: str, source: Source) -> str:
    """Replace each line that IPython would: those that begin a statement with an escape, end with ?, or assign a magic."""
    lines = text.splitlines(keepends=True)
    out: list[str] = []
    state = _State()
    at = 0
    while at < len(lines):
        line = lines[at]
        if not state.fresh:
            state.feed(line)
            out.append(line)
            at += 1
            continue
        first = at
        while line.endswith("\\\n") and at + 1 < len(lines):
            at += 1
            line = line[:-2] + " " + lines[at]
        at += 1
        body = line.rstrip("\r\n")
        new = _line(body, source)
        if new is None:
            for kept in lines[first:at]:
                state.feed(kept)
                out.append(kept)
        else:
            out.append(new + "\n" + "\n" * (at - first - 1))
    return "".join(out)


def _line(line: str, source: Source, depth: int = 0) -> Optional[str]:
    """The Python for one line, None if IPython leaves it alone."""
    stripped = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    if not stripped or depth > 8:
        return None
    escape, content = stripped[0], stripped[1:]
    if stripped.endswith("?") and not stripped.startswith(("!", "?")) and "#" not in stripped:
        return indent + _help(stripped.rstrip("?"), source)
    if escape == "?":
        return indent + _help(content.lstrip("?"), source)
    if escape == "!":
        return indent + source.stand_in(_shell(content.lstrip("!")))
    if escape in ",;/":
        return indent + source.stand_in(Special(f"uses IPython's `{escape}` syntax", dominion=True))
    if escape == "%":
        name, _, rest = content.lstrip().partition(" ")
        return indent + _wrapped(line_magic(name, rest, source), source, depth)
    assigned = _ASSIGNED.match(line)
    if assigned:
        target, escape, content = assigned.groups()
        if escape == "!":
            return f"{target} {source.stand_in(_shell(content))}"
        name, _, rest = content.strip().partition(" ")
        return f"{target} {_wrapped(line_magic(name, rest, source), source, depth)}"
    return None


def _wrapped(statement: str, source: Source, depth: int) -> str:
    """A statement inside a magic, which may be IPython's own syntax in turn. It must be whole."""
    inner = _line(statement, source, depth + 1)
    if inner is None:
        if _parse(statement) is None:
            source.problem = "times something that isn't whole"
        return statement
    return inner.strip()


def _help(target: str, source: Source) -> str:
    """Help on an object shows it, so it is used; help on a magic or on names by pattern touches nothing."""
    target = target.strip()
    if not target or target.startswith("%"):
        return source.stand_in(Special())
    if _DOTTED.match(target):
        return target
    return source.stand_in(Special("looks up objects by a pattern"))


def _literal(setting: str) -> bool:
    match = _LITERAL_SETTING.match(setting)
    try:
        return not setting or (match is not None and ast.literal_eval(match.group(1)) is not None)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def _one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1


def _parse(text: str) -> Optional[ast.Module]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


_TOKEN = re.compile(r'"""|\'\'\'|["\'#()\[\]{}]')


class _State:
    """Where in Python a line ends: inside a string, inside brackets, or at a fresh statement."""

    def __init__(self) -> None:
        self._quote = ""
        self._depth = 0
        self._continued = False

    @property
    def fresh(self) -> bool:
        return not self._quote and self._depth <= 0 and not self._continued

    def feed(self, line: str) -> None:
        at = 0
        self._continued = False
        while at < len(line):
            if self._quote:
                at = self._string(line, at)
                continue
            match = _TOKEN.search(line, at)
            if not match or match.group() == "#":
                break
            token, at = match.group(), match.end()
            if token in "([{":
                self._depth += 1
            elif token in ")]}":
                self._depth -= 1
            else:
                self._quote = token
        else:
            at = len(line)
        comment = at < len(line) and "#" in line[at:]
        body = line.rstrip("\r\n")
        if self._quote and len(self._quote) == 1 and not body.endswith("\\"):
            self._quote = ""  # unterminated: not a string after all
        self._continued = not self._quote and not comment and body.endswith("\\")

    def _string(self, line: str, at: int) -> int:
        """The position after the string's end in this line, or the line's end."""
        while at < len(line):
            if line[at] == "\\":
                at += 2
            elif line.startswith(self._quote, at):
                at += len(self._quote)
                self._quote = ""
                return at
            else:
                at += 1
        return at


def shell_method(method: str, words: list[str]) -> Optional[Special]:
    """A call of a method of IPython's shell with constant arguments; None where it isn't understood."""
    source = Source()
    if method in ("system", "getoutput") and len(words) == 1:
        return _shell(words[0])
    if method in ("run_line_magic", "magic") and words:
        name, _, rest = " ".join(words).lstrip("%").partition(" ")
        if name not in known.TIMING and name not in known.HELP and name != "autoreload":
            return _judge(name, rest.strip(), source)
    return None
