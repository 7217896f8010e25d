"""The lease rules in force, as people see and change them while a broker runs: by REST, or at an on-demand broker's counter.

It must never leave half of a change in force.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traitlets import TraitError

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
    try:
        for name, value in changes.items():
            setattr(leases, name, value)
        in_force()
    except (TraitError, SettingError, ArithmeticError, ValueError) as exc:
        for name in changes:
            setattr(leases, name, before[name])
        raise BadRequest(str(exc)) from None
