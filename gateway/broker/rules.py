"""The lease rules in force, as people see and change them while a broker runs: by REST, or at an on-demand broker's counter.

It must never leave half of a change in force.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from traitlets import Bool, TraitError

from ..protocol.errors import BadRequest, SettingError
from ..settings import Leases


def policy(leases: Leases) -> dict[str, Any]:
    """The settings of ``Leases`` as they are in force."""
    return {name: getattr(leases, name) for name in leases.trait_names(config=True)}


def change_policy(leases: Leases, changes: dict[str, Any], in_force: Callable[[], None] = lambda: None) -> None:
    """Set some of the settings of ``Leases`` and put them ``in_force``: all, or none. Raises ``BadRequest`` with what would hold."""
    before = policy(leases)
    for name in changes:
        if name not in before:
            raise BadRequest(f"There is no policy {name[:40]!r}. There are: {', '.join(sorted(before))}.")
    name = ""
    try:
        for name, value in changes.items():
            setattr(leases, name, value)
        in_force()
    except (TraitError, SettingError, ArithmeticError, ValueError) as exc:
        for each in changes:
            setattr(leases, each, before[each])
        if isinstance(exc, TraitError):
            raise BadRequest(f"{name} can't be {json.dumps(changes[name])[:40]}: it must be {_allowed(leases, name)}.") from None
        raise BadRequest(str(exc)) from None


def switch(body: dict[str, Any], name: str) -> bool:
    """True or false from a request. Raises ``BadRequest``."""
    value = body.get(name)
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false.")
    return value


def _allowed(leases: Leases, name: str) -> str:
    """In words for people who send JSON."""
    trait = leases.traits()[name]
    return "true or false" if isinstance(trait, Bool) else trait.info() + (", or null" if trait.allow_none else "")
