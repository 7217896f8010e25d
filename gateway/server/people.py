"""Who somebody is by the token that they show: the people of the users file, known by the hashes of their tokens.

```yaml
ana: {token: "sha256:9f86d081...", groups: [students]}
lab: {token: "sha256:...", front_end: true}
ops: {token: ["sha256:...", "sha256:..."], admin: true}
```

Tokens are long and random (``jupyter elastic-gateway token NAME`` makes one), so a plain hash of one can't be guessed back. It must never
keep a token itself, nor put one or its hash into a message.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from jupyter_server.auth.identity import User

from ..protocol.errors import SettingError
from ..stamps import stamp

log = logging.getLogger(__name__)

HASH = "sha256:"
MAX_NAME = 128
_FIELDS = ("token", "groups", "admin", "front_end")
_HASHED = re.compile(rf"{HASH}[0-9a-f]{{64}}")


@dataclass
class Person(User):
    """Somebody who has been let in. ``admin``: may do everything. ``front_end``: a server of many users, trusted to say whose kernel it
    starts, and let to act on all kernels. ``named``: ``username`` is who they are, not a name made up for a shared token."""

    admin: bool = False
    front_end: bool = False
    named: bool = True
    groups: tuple[str, ...] = field(default=())


def hashed(token: str) -> str:
    """As the users file has it."""
    return HASH + hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class People:
    """Those of one file, read again when it has changed. ``changed``: told the groups of each. Raises ``SettingError`` at first; later
    a file that can't hold is logged, and whoever was let in before still is."""

    def __init__(self, path: str, changed: Callable[[dict[str, tuple[str, ...]]], None] = lambda groups: None) -> None:
        self._path, self.changed = path, changed
        self._stamp = stamp(self._path)
        self._by_hash = self._read()

    def by_token(self, token: str) -> Person | None:
        now = stamp(self._path)
        if now != self._stamp:
            self._stamp = now
            try:
                self._by_hash = self._read()
            except SettingError as exc:
                log.error("The users file doesn't count as it is now, and what it said before goes on: %s", exc)
            else:
                self.changed(self.groups())
        return self._by_hash.get(hashed(token))

    def by_name(self, name: str) -> Person | None:
        return next((person for person in self._by_hash.values() if person.username == name), None)

    def groups(self) -> dict[str, tuple[str, ...]]:
        return {person.username: person.groups for person in self._by_hash.values()}

    def _read(self) -> dict[str, Person]:
        try:
            with open(self._path, encoding="utf-8") as file:
                return read_people(file.read())
        except (OSError, ValueError) as exc:
            why = getattr(exc, "strerror", None) or "it isn't UTF-8 text"
            raise SettingError(f"The users file {self._path} can't be read: {why}.") from None
        except SettingError as exc:
            raise SettingError(f"{self._path}: {exc}") from None


def read_people(text: str) -> dict[str, Person]:
    """By the hash of each token. Raises ``SettingError`` with the name of whoever's entry can't hold, never with a hash."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as exc:
        mark = getattr(exc, "problem_mark", None)
        why = getattr(exc, "problem", None) or ("it is nested too deep" if isinstance(exc, RecursionError) else "it can't be read")
        raise SettingError(f"{f'line {mark.line + 1}: ' if mark else ''}this is no YAML: {why}.") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingError("a users file has names, each with a colon and its token behind it.")
    people: dict[str, Person] = {}
    for name, entry in found.items():
        name = str(name)
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise SettingError(f"{name[:40]!r} can't be the name of a user.")
        if not isinstance(entry, dict) or (wrong := [key for key in entry if key not in _FIELDS]):
            what = f"no {wrong[0]!r}" if isinstance(entry, dict) else "{token: ...}"
            raise SettingError(f"the entry of {name!r} may have {', '.join(_FIELDS)}: {what}.")
        person = Person(name, admin=_flag(name, entry, "admin"), front_end=_flag(name, entry, "front_end"), groups=_groups(name, entry))
        for token in _tokens(name, entry):
            if people.setdefault(token, person) is not person:
                raise SettingError(f"{people[token].username!r} and {name!r} have the same token, so nobody could tell them apart.")
    return people


def _tokens(name: str, entry: dict[str, Any]) -> list[str]:
    tokens = entry.get("token", [])
    tokens = tokens if isinstance(tokens, list) else [tokens]
    if not tokens or not all(isinstance(token, str) and _HASHED.fullmatch(token) for token in tokens):
        raise SettingError(
            f"the token of {name!r} must be the hash of one, {HASH} and 64 digits and letters; what makes both: "
            f"`jupyter elastic-gateway token {name}`."
        )
    return tokens


def _flag(name: str, entry: dict[str, Any], key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise SettingError(f"{key} of {name!r} must be true or false.")
    return value


def _groups(name: str, entry: dict[str, Any]) -> tuple[str, ...]:
    groups = entry.get("groups", [])
    if not isinstance(groups, list) or not all(isinstance(group, str) and group for group in groups):
        raise SettingError(f"groups of {name!r} must be a list of names.")
    return tuple(groups)
