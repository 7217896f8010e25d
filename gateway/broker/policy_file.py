"""The policy file as it is written: YAML in, values with their lines out, or what is wrong and where.

```yaml
site: {idle_timeout: 2m, gpus_per_user: 4}
flavors: {a100: {max_hold: 8h}}
kernelspecs: {elastic-python: {min_hold: 10}}
groups: {students: {members: [ana, bo], gpus_per_user: 1, weight: 0.5}}
users: {ana: {idle_timeout: 5}}
```

PyYAML reads it: it comes with jupyter_server, and its nodes know their lines. (YAML also reads JSON.) Pure but for that: it must never
decide which of two values holds, nor accept what the settings of ``Leases`` would refuse.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from traitlets import Bool, TraitError

from ..leases.levels import FLAVOR, GROUP, KERNELSPEC, OF_SITE, OF_USERS, SITE, USER
from ..protocol.durations import read_duration
from ..protocol.errors import SettingError
from ..settings import Leases, Seconds

SECTIONS = {"site": SITE, "flavors": FLAVOR, "kernelspecs": KERNELSPEC, "groups": GROUP, "users": USER}
MEMBERS = "members"
SETTINGS = tuple(name for name in Leases.class_trait_names(config=True) if name != "policy_file")
SITE_ONLY = (*OF_SITE, "use_interval")
MOST = 1 << 20  # bytes of a file
_MAX_NAME = 253


@dataclass(frozen=True)
class Written:
    """A value, and the line that it stands in (0: in no file)."""

    value: Any
    line: int = 0


@dataclass(frozen=True)
class Rulebook:
    """What somebody has written down: by level, name ("" for the site) and setting; and who is in which group."""

    said: dict[tuple[str, str], dict[str, Written]] = field(default_factory=dict)
    members: dict[str, Written] = field(default_factory=dict)  # of tuples of names


def read_file(text: str) -> Rulebook:
    """Raises ``SettingError`` that begins with the line."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise _wrong(mark.line + 1 if mark else 1, f"this is no YAML: {exc.problem or exc.context}") from None
    except RecursionError:
        raise _wrong(1, "this is no YAML: it is nested too deep") from None
    except yaml.YAMLError as exc:
        raise _wrong(1, f"this is no YAML: {(str(exc).splitlines() or ['it can not be read'])[0]}") from None
    return Rulebook() if node is None else _rulebook(node)


def read_changes(body: dict[str, Any]) -> Rulebook:
    """The same from a request, where settings of the site may also stand without ``site``. Raises ``SettingError``."""
    bare = {name: value for name, value in body.items() if name not in SECTIONS}
    sections = {name: value for name, value in body.items() if name in SECTIONS}
    if bare:
        site = sections.get("site", {})
        if not isinstance(site, dict):
            raise SettingError("site must be an object of settings and values.")
        sections["site"] = {**site, **bare}
    return _rulebook(sections)


def _rulebook(tree: Any) -> Rulebook:
    book = Rulebook()
    for section, line, settings in _pairs(tree, "the policy", "site, flavors, kernelspecs, groups or users"):
        if section not in SECTIONS:
            raise _wrong(line, f"there is no section {section[:40]!r}.{_near(section, SECTIONS)} There are: {', '.join(SECTIONS)}")
        if section == "site":
            book.said[SITE, ""] = _settings(settings, SITE, "site")
            continue
        for name, at, values in _pairs(settings, section, "names"):
            if not name or len(name) > _MAX_NAME or not name.isprintable():
                raise _wrong(at, f"{section} can't have the name {name[:40]!r}")
            found = _settings(values, SECTIONS[section], f"{section}.{name[:40]}")
            if (members := found.pop(MEMBERS, None)) is not None:
                book.members[name] = members
            book.said[SECTIONS[section], name] = found
    return book


def _settings(tree: Any, level: str, where: str) -> dict[str, Written]:
    found = {}
    for name, line, node in _pairs(tree, where, "settings"):
        if name == MEMBERS and level == GROUP:
            found[name] = Written(_names(node, line, where), line)
            continue
        if name not in SETTINGS:
            raise _wrong(line, f"there is no policy {name[:40]!r}.{_near(name, SETTINGS)} There are: {', '.join(sorted(SETTINGS))}")
        if level != SITE and name in SITE_ONLY:
            raise _wrong(line, f"{name} holds for the whole site: it can't differ in {where}. Put it under site")
        if level in (FLAVOR, KERNELSPEC) and name in OF_USERS:
            raise _wrong(line, f"{name} is a user's share: it can't differ in {where}. Put it under groups, users or site")
        found[name] = Written(_value(name, _plain(node), line), line)
    return found


def _value(name: str, value: Any, line: int) -> Any:
    """What the setting of ``Leases`` takes, durations also as people write them."""
    trait = Leases.class_traits()[name]
    if isinstance(value, str) and trait.allow_none and value.lower() in ("none", "null"):
        value = None
    elif isinstance(value, str) and isinstance(trait, Seconds) and (seconds := read_duration(value)) is not None:
        value = seconds
    try:
        scratch = Leases()
        setattr(scratch, name, value)
    except (TraitError, ArithmeticError, ValueError) as exc:
        allowed = "true or false" if isinstance(trait, Bool) else trait.info() + (", or null" if trait.allow_none else "")
        shown = json.dumps(value, default=str)[:40]
        why = str(exc).partition("can't hold: ")[2].rstrip(".")
        raise _wrong(line, f"{name} can't be {shown}: {why + '. It' if why else 'it'} must be {allowed}") from None
    return getattr(scratch, name)


def _names(node: Any, line: int, where: str) -> tuple[str, ...]:
    if isinstance(node, yaml.SequenceNode):
        names = [each.value if isinstance(each, yaml.ScalarNode) else None for each in node.value]
    else:
        names = node if isinstance(node, list) else [None]
    if not all(isinstance(name, str) and name and len(name) <= _MAX_NAME for name in names):
        raise _wrong(line, f"members of {where} must be a list of names")
    return tuple(dict.fromkeys(map(str, names)))


def _pairs(tree: Any, where: str, what: str) -> Iterator[tuple[str, int, Any]]:
    """``(key, line, value)`` of a mapping, keys as they are written and each once. None is an empty one."""
    line = tree.start_mark.line + 1 if isinstance(tree, yaml.Node) else 0
    if tree is None or (isinstance(tree, yaml.ScalarNode) and tree.tag.endswith(":null")):
        return
    if isinstance(tree, dict):
        yield from ((name, 0, value) for name, value in tree.items())
        return
    if not isinstance(tree, yaml.MappingNode):
        raise _wrong(line, f"{where} must have {what}, each with a colon behind it")
    seen: dict[str, int] = {}
    for key, value in tree.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
            raise _wrong(at, f"{where} must have {what}, each with a colon behind it")
        if key.value in seen:
            raise _wrong(at, f"{key.value[:40]!r} stands in line {seen[key.value]} already, and which one holds can't be told")
        seen[key.value] = at
        yield key.value, at, value


def _plain(node: Any) -> Any:
    if not isinstance(node, yaml.Node):
        return node
    if not isinstance(node, yaml.ScalarNode):
        return [] if isinstance(node, yaml.SequenceNode) else {}
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node.value


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]}?" if near else ""


def _wrong(line: int, why: str) -> SettingError:
    sentence = why if not why.startswith(("there is", "members of")) else f"{why[0].upper()}{why[1:]}"  # others begin with a name
    return SettingError(f"line {line}: {why}." if line else f"{sentence}.")
